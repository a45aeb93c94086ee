#include "tools/quantize/gguf_read_back.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_error.h"
#include "engine/pooling.h"
#include "io/gguf.h"
#include "io/model_config.h"
#include "models/model_equations.h"
#include "models/registry.h"
#include "platform/platform.h"
#include "quant/quant_config.h"
#include "tools/quantize/gguf_tensors.h"

namespace choral::tools {
namespace {

// The file's beginning, and nothing where the weights will be: addresses without memory.
class FileToCome : public io::FileBytes {
 public:
  static Result<std::shared_ptr<const FileToCome>> make(const GgufPreview& preview) {
    const auto beginning = io::gguf_beginning(preview.keys.metadata, preview.tensors);
    const auto size = static_cast<size_t>(beginning.file_bytes);
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return system_error(errno, "cannot map a file's beginning");
    auto* const bytes = static_cast<std::byte*>(memory);
    std::memcpy(bytes, beginning.bytes.data(), beginning.bytes.size());
    size_t at = beginning.bytes.size();
    for (const auto& [name, values] : preview.keys.factors) {
      std::memcpy(bytes + at, values.data(), values.size() * sizeof(float));
      at += io::gguf_aligned(values.size() * sizeof(float));
    }
    return std::shared_ptr<const FileToCome>(new FileToCome({bytes, size}));
  }
  ~FileToCome() override { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  void release(std::span<const std::byte>) const override {}
  Status check_unchanged() const override { return {}; }

 private:
  explicit FileToCome(std::span<const std::byte> bytes) : FileBytes("the GGUF file to be written") { bytes_ = bytes; }
};

// What readers of a family know by heart, so that neither a key nor a model's spec says it.
struct KnownByHeart {
  std::string_view hf_class, field, value;  // as JSON
};
constexpr KnownByHeart kKnown[] = {{"Llama4ForCausalLM", "attention_chunk_size", "8192"},
                                   {"Llama4ForCausalLM", "floor_scale", "8192"},
                                   {"Llama4ForCausalLM", "attn_temperature_tuning", "true"}};

Status check_known(const io::ConfigMap& config) {
  CHORAL_TRY(const auto classes, config.get_strings("architectures"));
  for (const auto& [hf_class, field, value] : kKnown) {
    const io::ConfigValue* said = config.object().find(field);
    if (classes.front() != hf_class || said == nullptr || said->to_json() == value) continue;
    return unsupported("{} is {}; GGUF has no word for it, and its readers take {}", config.path_of(field), said->to_json(),
                       value);
  }
  return {};
}

Status check_pooling(const FloatModel& model, const io::ConfigMap& read) {
  CHORAL_TRY(const auto form, engine::read_pooling(model.location.directory, model.config));
  CHORAL_TRY(const auto found, engine::read_pooling({}, read));
  if (form.pooling == found.pooling && form.may_be_cut == found.may_be_cut && form.dimensions.empty()) return {};
  return unsupported("{}: how its embeddings are made{} is more than GGUF can say", model.location.directory.string(),
                     form.dimensions.empty() ? "" : ", and to which sizes they may be cut (matryoshka_dimensions),");
}

// Every tensor has come, in the shape that it had.
Status check_tensors(const FloatModel& model, const io::Checkpoint& read, std::span<const std::string> written) {
  for (const std::string& source : written) {
    const std::string name = name_read_back(source);
    CHORAL_TRY(const auto was, model.checkpoint->find(source));
    CHORAL_TRY(const auto is, read.find(name));
    if (was.view.shape == is.view.shape) continue;
    return unsupported("tensor {} is {}, but would be read as {}", source, was.view.shape.to_string(), is.view.shape.to_string());
  }
  return {};
}

}  // namespace

Result<OwnedSpec> OwnedSpec::read(const io::ConfigMap& config) {
  ThreadPool pool(1);
  CHORAL_TRY(const auto session, platform::cpu_platform().open(pool, {}));
  CHORAL_TRY(const auto floats, quant::make_quant_config(config, "auto"));
  const platform::CustomOpConfig ops;
  const platform::LayerOverrides overrides;
  // Of one position: tables of more say nothing else.
  CHORAL_TRY(const auto model, models::make_model(config, {*session, *floats, ops, overrides, /*max_model_len=*/1}));
  OwnedSpec out;
  std::visit([&](const auto* spec) { out.spec_ = *spec; }, model->spec());
  // Files of a model without a head have none either: to their readers it is the embedding.
  if (auto* decoder = std::get_if<models::DecoderSpec>(&out.spec_);
      decoder != nullptr && model->head().kind == models::HeadKind::kNone)
    decoder->tie_word_embeddings = true;
  return out;
}

models::ModelSpec OwnedSpec::view() const {
  return std::visit([](const auto& spec) -> models::ModelSpec { return &spec; }, spec_);
}

const models::DecoderSpec& OwnedSpec::decoder() const {
  const auto* gemma4 = std::get_if<models::Gemma4Spec>(&spec_);
  return gemma4 != nullptr ? gemma4->decoder : std::get<models::DecoderSpec>(spec_);
}

Status check_read_back(const FloatModel& model, const OwnedSpec& spec, const GgufPreview& preview) {
  CHORAL_RETURN_IF_ERROR(check_known(model.config));
  CHORAL_TRY(auto bytes, FileToCome::make(preview));
  CHORAL_TRY(auto gguf, io::GgufFile::parse(std::move(bytes)));
  const io::ModelLocation location{.kind = io::ModelLocation::Kind::kGguf, .directory = {}, .file = {}, .gguf = std::move(gguf)};
  CHORAL_TRY(const auto config, io::load_model_config(location));
  CHORAL_TRY(const auto read, OwnedSpec::read(config));
  CHORAL_TRY(const auto wanted, models::facts_of(spec.view()));
  CHORAL_TRY(const auto found, models::facts_of(read.view()));
  if (const auto other = models::first_difference(wanted, found)) {
    return unsupported(
        "{}: GGUF files of this family have no word for what this model is: its {} is {}, and readers would take it for {}",
        model.config.source(), other->name, other->first, other->second);
  }
  CHORAL_RETURN_IF_ERROR(check_pooling(model, config));
  CHORAL_TRY(const int64_t context, model.config.get_int("max_position_embeddings", io::kPositive));
  CHORAL_TRY(const int64_t read_context, config.get_int("max_position_embeddings", io::kPositive));
  CHORAL_CHECK(context == read_context, "every architecture has a key for the context's length");
  CHORAL_TRY(const auto checkpoint, io::Checkpoint::open(location));
  return check_tensors(model, *checkpoint, preview.sources);
}

}  // namespace choral::tools
