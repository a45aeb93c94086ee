#include "requests/engine_json.h"

#include <array>
#include <span>

#include "base/nearest_name.h"
#include "requests/fields.h"
#include "requests/member_count.h"

namespace choral::requests {
namespace {

// Each member with its field; a member of another name is an error.
template <class Body>
Status read_fields(const Json& json, std::span<const Field<Body>> fields, std::string_view where, Body& body) {
  for (const auto& [name, value] : json.items()) {
    const auto* field = find_field(fields, name);
    if (field == nullptr) {
      std::vector<std::string> names;
      for (const auto& known : fields) names.emplace_back(known.name);
      const std::string nearest = nearest_name(name, names);
      return invalid_argument("'{}{}' is not known{}", where, shown(name),
                              nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
    }
    if (!value.is_null()) CHORAL_RETURN_IF_ERROR(field->read(fmt::format("{}{}", where, name), value, body));
  }
  return {};
}

#define CHORAL_FIELD(Body, name, target)                                                             \
  Field<Body> {                                                                                      \
#name, {}, [](std::string_view n, const Json& j, Body& b) { return read_value(n, j, b.target); } \
  }

constexpr std::array kSpecFields{
    CHORAL_FIELD(AdapterLoad, name, spec.name),
    CHORAL_FIELD(AdapterLoad, path, spec.path),
    CHORAL_FIELD(AdapterLoad, pinned, spec.pinned),
    CHORAL_FIELD(AdapterLoad, last_generation, spec.last_generation),
    CHORAL_FIELD(AdapterLoad, last_digest, spec.last_digest),
};
static_assert(kSpecFields.size() + 1 == member_count<AdapterSpec>(), "a member of AdapterSpec is missing; bytes have no JSON");
constexpr std::array kLoadFields{kSpecFields[0],
                                 kSpecFields[1],
                                 kSpecFields[2],
                                 kSpecFields[3],
                                 kSpecFields[4],
                                 CHORAL_FIELD(AdapterLoad, replace, replace),
                                 CHORAL_FIELD(AdapterLoad, expected_generation, expected_generation)};

template <auto kMember>
Status read_specs(std::string_view name, const Json& json, EngineOptions& out) {
  if (!json.is_array()) return wrong_type(name, R"(a list of objects such as {"name": "…", "path": "…"})", json);
  std::vector<AdapterSpec>& specs = out.*kMember;
  specs.clear();
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, specs.size());
    if (!entry.is_object()) return wrong_type(place, R"(an object such as {"name": "…", "path": "…"})", entry);
    AdapterLoad read;
    CHORAL_RETURN_IF_ERROR(read_fields(entry, std::span<const Field<AdapterLoad>>(kSpecFields), place + ".", read));
    specs.push_back(std::move(read.spec));
  }
  return {};
}

#define CHORAL_OPTION(name) CHORAL_FIELD(EngineOptions, name, name)
constexpr std::array kOptions{
    CHORAL_OPTION(model),
    CHORAL_OPTION(tokenizer),
    CHORAL_OPTION(dtype),
    CHORAL_OPTION(quantization),
    CHORAL_OPTION(activations),
    CHORAL_OPTION(packed_cache),
    CHORAL_OPTION(kv_cache_dtype),
    CHORAL_OPTION(device),
    CHORAL_OPTION(strict),
    CHORAL_OPTION(require_device),
    CHORAL_OPTION(custom_ops),
    CHORAL_OPTION(fuse),
    CHORAL_OPTION(worker_cls),
    CHORAL_OPTION(threads),
    CHORAL_OPTION(numa),
    CHORAL_OPTION(tensor_parallel_size),
    CHORAL_OPTION(max_model_len),
    CHORAL_OPTION(max_num_seqs),
    CHORAL_OPTION(max_num_batched_tokens),
    CHORAL_OPTION(kv_cache_bytes),
    CHORAL_OPTION(max_waiting),
    CHORAL_OPTION(max_waiting_tokens),
    CHORAL_OPTION(request_timeout_s),
    CHORAL_OPTION(queue_timeout_s),
    CHORAL_OPTION(enable_prefix_caching),
    CHORAL_OPTION(enable_chunked_prefill),
    CHORAL_OPTION(speculative),
    CHORAL_OPTION(most_guessed),
    CHORAL_OPTION(traffic_memory_bytes),
    CHORAL_OPTION(draft_model),
    CHORAL_OPTION(draft_quantization),
    CHORAL_OPTION(scheduling_policy),
    CHORAL_OPTION(seed),
    CHORAL_OPTION(chat_template),
    CHORAL_OPTION(adapter_root),
    CHORAL_OPTION(lora_dtype),
    CHORAL_OPTION(max_lora_rank),
    CHORAL_OPTION(lora_extra_vocab_size),
    CHORAL_OPTION(lora_bias),
    CHORAL_OPTION(max_loras),
    CHORAL_OPTION(max_cpu_loras),
    CHORAL_OPTION(fully_sharded_loras),
    CHORAL_OPTION(adapter_memory_bytes),
    CHORAL_OPTION(generations_alive),
    Field<EngineOptions>{"adapters", {}, read_specs<&EngineOptions::adapters>},
    Field<EngineOptions>{"draft_adapters", {}, read_specs<&EngineOptions::draft_adapters>},
};
// layer_overrides, platform, rank_link and its rank_timeout_s, adapter_generations, adapter_places, on_progress, on_lost;
// kv_event_batches, which only LLM::next_kv_events() empties
constexpr size_t kNotFromJson = 9;
static_assert(kOptions.size() + kNotFromJson == member_count<EngineOptions>(), "a member of EngineOptions is missing");
#undef CHORAL_OPTION
#undef CHORAL_FIELD

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string_view tier_of(AdapterState state) {
  switch (state) {
    case AdapterState::kOnDisk:
    case AdapterState::kFailed: return "file";
    case AdapterState::kLoading: return "loading";
    case AdapterState::kResident: return "host";
  }
  return "";
}

}  // namespace

Result<EngineOptions> read_engine_options(std::string_view json) {
  CHORAL_TRY(const Json parsed, parse_object(json, "the options"));
  EngineOptions options;
  CHORAL_RETURN_IF_ERROR(read_fields(parsed, std::span<const Field<EngineOptions>>(kOptions), "", options));
  return options;
}

Result<AdapterLoad> read_adapter_load(std::string_view json) {
  CHORAL_TRY(const Json parsed, parse_object(json, "the adapter"));
  AdapterLoad load;
  CHORAL_RETURN_IF_ERROR(read_fields(parsed, std::span<const Field<AdapterLoad>>(kLoadFields), "", load));
  return load;
}

Json adapter_json(const AdapterInfo& a) {
  return {{"name", a.name},
          {"id", a.id},
          {"generation", a.generation},
          {"digest", text_or_null(a.digest)},
          {"state", adapter_state_name(a.state)},
          {"tier", tier_of(a.state)},
          {"kind", text_or_null(a.kind)},
          {"rank", a.rank},
          {"bytes", a.size_bytes},
          {"pinned", a.pinned},
          {"in_use", a.in_use},
          {"loads", a.loads},
          {"requests", a.requests},
          {"last_use", a.last_use_unix_s > 0 ? Json(a.last_use_unix_s) : Json(nullptr)},
          {"errors", a.errors},
          {"notes", a.notes}};
}

Json adapter_layer_json(const AdapterLayer& layer) {
  return {{"module", layer.module},
          {"kind", layer.kind},
          {"rank", layer.rank},
          {"scaling", layer.scaling},
          {"norm", layer.norm ? Json(*layer.norm) : Json(nullptr)}};
}

Json running_answer_json(const RunningAnswer& answer) {
  Json adapters = Json::array();
  for (const auto& use : answer.adapters) adapters.push_back({{"name", use.name}, {"scale", use.scale}});
  return {{"adapters", std::move(adapters)},          {"prompt_tokens", answer.prompt_tokens},
          {"read_tokens", answer.read_tokens},        {"made_tokens", answer.made_tokens},
          {"guessed_tokens", answer.guesses.guessed}, {"right_guesses", answer.guesses.right}};
}

Json model_json(const ModelInfo& m) {
  return {{"name", m.name},
          {"architecture", m.architecture},
          {"parameters", m.parameters},
          {"weight_bytes", m.weight_bytes},
          {"kv_cache_bytes", m.kv_cache_bytes},
          {"kv_cache_tokens", m.kv_cache_tokens},
          {"kv_block_tokens", m.kv_block_tokens},
          {"kv_cache_dtype", m.kv_cache_dtype},
          {"max_model_len", m.max_model_len},
          {"vocab_size", m.vocab_size},
          {"ranks", m.ranks},
          {"threads", m.threads},
          {"cpu_level", m.cpu_level},
          {"has_chat_template", m.has_chat_template},
          {"notes", m.notes}};
}

template <class Bounds>
Json counted_json(const Counted<Bounds>& counted, const char* what) {
  return {{"at_most", Bounds::kBounds}, {what, counted.counts}, {"sum", counted.sum}};
}

Json stats_json(const EngineStats& s) {
  static_assert(member_count<EngineStats>() == 22, "a member of EngineStats is missing below");
  return {{"running", s.running},
          {"waiting", s.waiting},
          {"waiting_tokens", s.waiting_tokens},
          {"steps", s.steps},
          {"prompt_tokens", s.prompt_tokens},
          {"generated_tokens", s.generated_tokens},
          {"preemptions", s.preemptions},
          {"corrupted", s.corrupted},
          {"step_tokens", counted_json(s.step_tokens, "steps")},
          {"speculation",
           {{"drafts", s.speculation.drafts},
            {"guessed", s.speculation.guessed},
            {"right", s.speculation.right},
            {"right_at", s.speculation.right_at},
            {"draft_guessed", s.speculation.draft_guessed},
            {"draft_right", s.speculation.draft_right},
            {"draft_steps", s.speculation.draft_steps},
            {"draft_seconds", s.speculation.draft_seconds},
            {"draft_failed", s.speculation.draft_failed}}},
          {"prefix_query_tokens", s.prefix_query_tokens},
          {"prefix_hit_tokens", s.prefix_hit_tokens},
          {"kv_blocks_total", s.kv_blocks_total},
          {"kv_blocks_free", s.kv_blocks_free},
          {"adapter_bytes", s.adapter_bytes},
          {"adapter_budget_bytes", s.adapter_budget_bytes},
          {"adapter_loads", s.adapter_loads},
          {"adapter_load_seconds", counted_json(s.adapter_load_seconds, "loads")},
          {"adapter_evictions", s.adapter_evictions},
          {"host_copies", s.host_copies},
          {"host_copied_bytes", s.host_copied_bytes},
          {"is_paused", s.is_paused}};
}

}  // namespace choral::requests
