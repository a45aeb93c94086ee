// What goes in: the engine's options, requests, sampling parameters. Plain records with the engine's own defaults.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "binding.h"

namespace choral::python {
namespace {

// Of each answer the tokens that were given of it.
std::vector<std::vector<int32_t>> given_token_ids(const Request& request) {
  std::vector<std::vector<int32_t>> out;
  for (const GivenAnswer& answer : request.given) out.push_back(answer.token_ids);
  return out;
}
void set_given_token_ids(Request& request, std::vector<std::vector<int32_t>> answers) {
  request.given.clear();
  for (auto& ids : answers) request.given.push_back({.token_ids = std::move(ids)});
}

AdapterSpec make_adapter_spec(std::string name, std::string path, const std::map<std::string, nb::bytes>& files, bool pinned) {
  AdapterSpec spec{.name = std::move(name), .path = std::move(path), .pinned = pinned};
  if (files.empty()) return spec;
  auto bytes = std::make_shared<AdapterBytes>();
  for (const auto& [file, content] : files) bytes->emplace(file, std::string(content.c_str(), content.size()));
  spec.bytes = std::move(bytes);
  return spec;
}

}  // namespace

void bind_options(nb::module_& m) {
  using nb::arg;
  nb::class_<AdapterSpec>(m, "AdapterSpec")
      .def(nb::new_(&make_adapter_spec), arg("name"), arg("path") = "", arg("files") = std::map<std::string, nb::bytes>(),
           arg("pinned") = false)
      .def_ro("name", &AdapterSpec::name)
      .def_ro("path", &AdapterSpec::path);

  nb::class_<EngineOptions>(m, "EngineOptions")
      .def(nb::init<>())
      .def_rw("model", &EngineOptions::model)
      .def_rw("tokenizer", &EngineOptions::tokenizer)
      .def_rw("dtype", &EngineOptions::dtype)
      .def_rw("quantization", &EngineOptions::quantization)
      .def_rw("activations", &EngineOptions::activations)
      .def_rw("packed_cache", &EngineOptions::packed_cache)
      .def_rw("kv_cache_dtype", &EngineOptions::kv_cache_dtype)
      .def_rw("device", &EngineOptions::device)
      .def_rw("strict", &EngineOptions::strict)
      .def_rw("require_device", &EngineOptions::require_device)
      .def_rw("custom_ops", &EngineOptions::custom_ops)
      .def_rw("fuse", &EngineOptions::fuse)
      .def_rw("threads", &EngineOptions::threads)
      .def_rw("numa", &EngineOptions::numa)
      .def_rw("tensor_parallel_size", &EngineOptions::tensor_parallel_size)
      .def_rw("max_model_len", &EngineOptions::max_model_len)
      .def_rw("max_num_seqs", &EngineOptions::max_num_seqs)
      .def_rw("max_num_batched_tokens", &EngineOptions::max_num_batched_tokens)
      .def_rw("kv_cache_bytes", &EngineOptions::kv_cache_bytes)
      .def_rw("max_waiting", &EngineOptions::max_waiting)
      .def_rw("max_waiting_tokens", &EngineOptions::max_waiting_tokens)
      .def_rw("request_timeout_s", &EngineOptions::request_timeout_s)
      .def_rw("queue_timeout_s", &EngineOptions::queue_timeout_s)
      .def_rw("enable_prefix_caching", &EngineOptions::enable_prefix_caching)
      .def_rw("enable_chunked_prefill", &EngineOptions::enable_chunked_prefill)
      .def_rw("speculative", &EngineOptions::speculative)
      .def_rw("most_guessed", &EngineOptions::most_guessed)
      .def_rw("traffic_memory_bytes", &EngineOptions::traffic_memory_bytes)
      .def_rw("draft_model", &EngineOptions::draft_model)
      .def_rw("draft_quantization", &EngineOptions::draft_quantization)
      .def_rw("draft_adapters", &EngineOptions::draft_adapters)
      .def_rw("scheduling_policy", &EngineOptions::scheduling_policy)
      .def_rw("seed", &EngineOptions::seed)
      .def_rw("chat_template", &EngineOptions::chat_template)
      .def_rw("adapters", &EngineOptions::adapters)
      .def_rw("adapter_root", &EngineOptions::adapter_root)
      .def_rw("lora_dtype", &EngineOptions::lora_dtype)
      .def_rw("max_lora_rank", &EngineOptions::max_lora_rank)
      .def_rw("lora_extra_vocab_size", &EngineOptions::lora_extra_vocab_size)
      .def_rw("lora_bias", &EngineOptions::lora_bias)
      .def_rw("max_loras", &EngineOptions::max_loras)
      .def_rw("max_cpu_loras", &EngineOptions::max_cpu_loras)
      .def_rw("fully_sharded_loras", &EngineOptions::fully_sharded_loras)
      .def_rw("adapter_memory_bytes", &EngineOptions::adapter_memory_bytes)
      .def_rw("generations_alive", &EngineOptions::generations_alive);

  nb::enum_<EarlyStopping>(m, "EarlyStopping")
      .value("NO", EarlyStopping::kNo)
      .value("YES", EarlyStopping::kYes)
      .value("NEVER", EarlyStopping::kNever);
  nb::class_<BeamSearch>(m, "BeamSearch")
      .def(nb::init<>())
      .def_rw("wanted", &BeamSearch::wanted)
      .def_rw("width", &BeamSearch::width)
      .def_rw("length_penalty", &BeamSearch::length_penalty)
      .def_rw("early_stopping", &BeamSearch::early_stopping);

  nb::class_<SamplingParams>(m, "SamplingParams")
      .def(nb::init<>())
      .def("__copy__", [](const SamplingParams& self) { return SamplingParams(self); })
      .def_rw("n", &SamplingParams::n)
      .def_rw("best_of", &SamplingParams::best_of)
      .def_rw("beams", &SamplingParams::beams)
      .def_rw("max_tokens", &SamplingParams::max_tokens)
      .def_rw("min_tokens", &SamplingParams::min_tokens)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("typical_p", &SamplingParams::typical_p)
      .def_rw("top_n_sigma", &SamplingParams::top_n_sigma)
      .def_rw("xtc_probability", &SamplingParams::xtc_probability)
      .def_rw("xtc_threshold", &SamplingParams::xtc_threshold)
      .def_rw("penalty_last_n", &SamplingParams::penalty_last_n)
      .def_rw("dry_multiplier", &SamplingParams::dry_multiplier)
      .def_rw("dry_base", &SamplingParams::dry_base)
      .def_rw("dry_allowed_length", &SamplingParams::dry_allowed_length)
      .def_rw("dry_penalty_last_n", &SamplingParams::dry_penalty_last_n)
      .def_rw("dry_sequence_breakers", &SamplingParams::dry_sequence_breakers)
      .def_rw("logit_bias_texts", &SamplingParams::logit_bias_texts)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("seed", &SamplingParams::seed, arg().none())
      .def_rw("stop", &SamplingParams::stop)
      .def_rw("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_rw("include_stop_str_in_output", &SamplingParams::include_stop_str_in_output)
      .def_rw("ignore_eos", &SamplingParams::ignore_eos)
      .def_rw("skip_special_tokens", &SamplingParams::skip_special_tokens)
      .def_rw("logprobs", &SamplingParams::logprobs, arg().none())
      .def_rw("logprob_token_ids", &SamplingParams::logprob_token_ids)
      .def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs, arg().none())
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("allowed_token_ids", &SamplingParams::allowed_token_ids)
      .def_rw("bad_words", &SamplingParams::bad_words);

  nb::class_<StructuredOutput> structured(m, "StructuredOutput");
  using Kind = StructuredOutput::Kind;
  nb::enum_<Kind>(structured, "Kind")
      .value("NONE", Kind::kNone)
      .value("JSON_OBJECT", Kind::kJsonObject)
      .value("JSON_SCHEMA", Kind::kJsonSchema)
      .value("REGEX", Kind::kRegex)
      .value("CHOICE", Kind::kChoice)
      .value("GRAMMAR", Kind::kGrammar)
      .value("STRUCTURAL_TAG", Kind::kStructuralTag);
  structured
      .def(
          "__init__",
          [](StructuredOutput* self, Kind kind, std::string text, std::vector<std::string> choices) {
            new (self) StructuredOutput{kind, std::move(text), std::move(choices)};
          },
          arg("kind") = Kind::kNone, arg("text") = "", arg("choices") = std::vector<std::string>())
      .def_ro("kind", &StructuredOutput::kind)
      .def_ro("text", &StructuredOutput::text)
      .def_ro("choices", &StructuredOutput::choices);

  nb::class_<AdapterUse>(m, "AdapterUse")
      .def(
          "__init__",
          [](AdapterUse* self, std::string name, float scale) {
            new (self) AdapterUse{std::move(name), scale};
          },
          arg("name"), arg("scale") = 1.0F)
      .def_ro("name", &AdapterUse::name)
      .def_ro("scale", &AdapterUse::scale);

  nb::class_<Request>(m, "Request")
      .def(nb::init<>())
      .def_rw("id", &Request::id)
      .def_rw("prompt", &Request::prompt, arg().none())
      .def_rw("prompt_token_ids", &Request::prompt_token_ids)
      .def_prop_rw("given_token_ids", &given_token_ids, &set_given_token_ids)
      .def_rw("messages_json", &Request::messages_json)
      .def_rw("tools_json", &Request::tools_json)
      .def_rw("template_kwargs_json", &Request::template_kwargs_json)
      .def_rw("add_generation_prompt", &Request::add_generation_prompt)
      .def_rw("continue_final_message", &Request::continue_final_message)
      .def_rw("add_special_tokens", &Request::add_special_tokens)
      .def_rw("truncate_prompt_tokens", &Request::truncate_prompt_tokens)
      .def_rw("adapters", &Request::adapters)
      .def_rw("embedding", &Request::embedding)
      .def_rw("embedding_dimensions", &Request::embedding_dimensions)
      .def_rw("classes", &Request::classes)
      .def_rw("in_background", &Request::in_background)
      .def_rw("sampling", &Request::sampling)
      .def_rw("priority", &Request::priority)
      .def_rw("cache_salt", &Request::cache_salt)
      .def_rw("structured_output", &Request::structured_output)
      .def_rw("prediction", &Request::prediction)
      .def_rw("most_guessed", &Request::most_guessed)
      .def_rw("timeout_s", &Request::timeout_s)
      .def_rw("queue_timeout_s", &Request::queue_timeout_s);
}

}  // namespace choral::python
