#include "tools/quantize/gguf_quantizer.h"

#include <mutex>

#include "base/cpu_level.h"
#include "base/system_error.h"
#include "engine/pooling.h"
#include "io/model_class.h"
#include "io/model_config.h"
#include "platform/platform.h"
#include "tools/quantize/gguf_keys.h"
#include "tools/quantize/gguf_pieces.h"
#include "tools/quantize/gguf_read_back.h"
#include "tools/quantize/gguf_tokenizer_keys.h"

namespace choral::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kQuantizationVersion = 2;  // of ggml's blocks

// ggml's number for what most of a file is.
uint32_t file_type(DType type) {
  switch (type) {
    case DType::kQ4_0: return 2;
    case DType::kQ4_1: return 3;
    default: return 7;
  }
}

// None: of this class no file is read.
std::optional<io::GgufArchitecture> architecture_of(const std::string& name, bool experts) {
  const auto [family, kind] = io::model_class(name);
  if (kind == io::ClassKind::kClasses) return std::nullopt;
  // llama.cpp has no architecture of Mistral's own: its equations are llama's.
  if (family == "Mistral") return io::gguf_architecture_of("LlamaForCausalLM", experts);
  if (const auto own = io::gguf_architecture_of(name, experts)) return own;
  return kind == io::ClassKind::kNoHead ? io::gguf_architecture_of(fmt::format("{}ForCausalLM", family), experts) : std::nullopt;
}

// How a model for embeddings makes one of its hidden states.
Status add_pooling(const FloatModel& model, const io::GgufArchitecture& architecture, io::GgufMetadata& metadata) {
  constexpr uint32_t kMean = 1, kFirst = 2, kLast = 3;  // of maxima reading back finds that there is no word
  CHORAL_TRY(const auto form, engine::read_pooling(model.location.directory, model.config));
  if (!form.may_be_cut) return {};
  metadata.set_u32(fmt::format("{}.pooling_type", architecture.name), form.pooling == engine::Pooling::kMean    ? kMean
                                                                      : form.pooling == engine::Pooling::kFirst ? kFirst
                                                                                                                : kLast);
  return {};
}

// What DeepSeek-V3.2's indexer is, which has no part in the model's equations here.
Status add_indexer(const io::ConfigMap& config, const io::GgufArchitecture& architecture, io::GgufMetadata& metadata) {
  if (architecture.hf_class != "DeepseekV32ForCausalLM") return {};
  for (const auto& [key, field] :
       {std::pair("head_count", "index_n_heads"), std::pair("key_length", "index_head_dim"), std::pair("top_k", "index_topk")}) {
    CHORAL_TRY(const int64_t value, config.get_int(field, {1, 1 << 24}));
    metadata.set_u32(fmt::format("{}.attention.indexer.{}", architecture.name, key), static_cast<uint32_t>(value));
  }
  return {};
}

class GgufQuantizer : public CheckpointQuantizer {
 public:
  Status open(const QuantizeOptions& options, const quant::WrittenScheme& scheme);
  Result<QuantizeReport> write() override;
  void remove_partial() override {
    std::error_code ignored;
    const std::lock_guard lock(mutex_);
    if (!partial_.empty()) fs::remove(partial_, ignored);
  }

 private:
  Status check_out() const;
  Status plan();
  Status describe();
  Status append_tensors(io::GgufWriter& writer) const;

  QuantizeOptions options_;
  fs::path path_;
  const quant::WrittenScheme* scheme_ = nullptr;
  FloatModel model_;
  GgufKeys keys_;
  std::vector<GgufTensorPlan> plans_;
  std::vector<io::TensorToCome> tensors_;  // those of keys_, then those of plans_
  std::unique_ptr<ThreadPool> pool_;
  std::mutex mutex_;
  fs::path partial_;  // under mutex_
};

Status GgufQuantizer::open(const QuantizeOptions& options, const quant::WrittenScheme& scheme) {
  options_ = options;
  path_ = options.out;
  scheme_ = &scheme;
  CHORAL_RETURN_IF_ERROR(check_out());
  CHORAL_TRY(model_, FloatModel::open(options, scheme));
  CHORAL_RETURN_IF_ERROR(plan());
  CHORAL_RETURN_IF_ERROR(describe());
  CHORAL_TRY(pool_, ThreadPool::make(options.threads > 0 ? options.threads : ThreadPool::default_size()));
  return {};
}

Status GgufQuantizer::check_out() const {
  if (path_.extension() != ".gguf") return invalid_argument("{}: --format gguf writes one file; name it *.gguf", options_.out);
  std::error_code error;
  const auto status = fs::status(path_, error);
  if (status.type() == fs::file_type::not_found) {
    const auto folder = path_.parent_path();
    if (folder.empty() || fs::is_directory(folder, error)) return {};
    return not_found("{} is to be made in {}, which is no folder; make that first", path_.filename().string(), folder.string());
  }
  if (error) return system_error(error.value(), fmt::format("cannot look at {}", options_.out));
  if (status.type() != fs::file_type::regular) return invalid_argument("{} is there and is no file", options_.out);
  if (options_.force) return {};
  return invalid_argument("{} is there already; name another file, or replace it with --force", options_.out);
}

Status GgufQuantizer::plan() {
  CHORAL_TRY(const auto classes, model_.config.get_strings("architectures"));
  CHORAL_TRY(const auto spec, OwnedSpec::read(model_.config));
  const auto architecture = architecture_of(classes.front(), spec.decoder().moe.has_value());
  if (!architecture) {
    return unsupported("{} is {}: GGUF has no architecture for it; use the folder as it is, or another format",
                       model_.config.path_of("architectures"), classes.front());
  }
  CHORAL_TRY(const int64_t context, model_.config.get_int("max_position_embeddings", io::kPositive));
  CHORAL_TRY(keys_, gguf_keys(spec.view(), *architecture, context));
  CHORAL_RETURN_IF_ERROR(add_pooling(model_, *architecture, keys_.metadata));
  CHORAL_RETURN_IF_ERROR(add_indexer(model_.config, *architecture, keys_.metadata));
  CHORAL_TRY(plans_, plan_gguf_tensors(model_, spec.decoder(), *architecture, scheme_->codes));
  for (const auto& [name, values] : keys_.factors) tensors_.push_back({name, DType::kF32, {std::ssize(values)}});
  std::vector<std::string> sources;
  for (const GgufTensorPlan& plan : plans_) {
    tensors_.push_back(plan.tensor);
    for (const GgufPiece& piece : plan.pieces) sources.push_back(piece.source);
  }
  return check_read_back(model_, spec, {keys_, tensors_, std::move(sources)});
}

// What a file says beside its model's shape.
Status GgufQuantizer::describe() {
  io::GgufMetadata& metadata = keys_.metadata;
  metadata.set_string("general.type", "model");
  std::error_code ignored;
  metadata.set_string("general.name", fs::weakly_canonical(model_.location.directory, ignored).filename().string());
  metadata.set_u32("general.file_type", file_type(scheme_->codes));
  metadata.set_u32("general.quantization_version", kQuantizationVersion);
  CHORAL_TRY(const auto generation, io::load_generation_config(model_.location));
  CHORAL_RETURN_IF_ERROR(io::put_gguf_sampling(generation, metadata));
  return add_tokenizer_keys(model_, metadata);
}

Status GgufQuantizer::append_tensors(io::GgufWriter& writer) const {
  CHORAL_TRY(const auto session, platform::cpu_platform().open(*pool_, {}));
  const platform::Context ctx(*session, *pool_, cpu_level());
  for (const auto& factors : keys_.factors) {
    CHORAL_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(factors.values))));
  }
  double done = 0;
  for (const GgufTensorPlan& plan : plans_) {
    for (const GgufPiece& piece : plan.pieces) {
      CHORAL_TRY(const auto source, model_.checkpoint->find(piece.source));
      if (options_.on_progress) {
        options_.on_progress({"write", piece.source, done / static_cast<double>(model_.checkpoint->total_bytes())});
      }
      CHORAL_TRY(Tensor made, make_gguf_piece(ctx, plan, piece, source));
      model_.checkpoint->release(piece.source);
      const bool part = !piece.rows.empty() && std::ssize(piece.rows) < source.view.shape[0];
      done += static_cast<double>(source.view.size_bytes()) / (part ? 2 : 1);
      CHORAL_RETURN_IF_ERROR(writer.append({made.data(), static_cast<size_t>(made.size_bytes())}));
    }
  }
  return {};
}

Result<QuantizeReport> GgufQuantizer::write() {
  CHORAL_TRY(const auto writer, io::GgufWriter::create(path_, keys_.metadata, tensors_));
  {
    const std::lock_guard lock(mutex_);
    partial_ = writer->unfinished_path();
  }
  CHORAL_RETURN_IF_ERROR(append_tensors(*writer));
  CHORAL_RETURN_IF_ERROR(model_.checkpoint->check_unchanged());
  CHORAL_RETURN_IF_ERROR(writer->finish());
  const auto ignored = model_.ignored_layers();
  QuantizeReport report{.quantised_layers = std::ssize(model_.layers) - ignored,
                        .float_layers = ignored,
                        .bytes_before = static_cast<int64_t>(model_.checkpoint->total_bytes()),
                        .weight_files = 1};
  for (const auto& tensor : tensors_) report.bytes_after += tensor.size_bytes();
  return report;
}

}  // namespace

Result<std::unique_ptr<CheckpointQuantizer>> open_gguf_quantizer(const QuantizeOptions& options,
                                                                 const quant::WrittenScheme& scheme) {
  auto quantizer = std::make_unique<GgufQuantizer>();
  CHORAL_RETURN_IF_ERROR(quantizer->open(options, scheme));
  return std::unique_ptr<CheckpointQuantizer>(std::move(quantizer));
}

}  // namespace choral::tools
