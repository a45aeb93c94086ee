#include "tools/quantize/gguf_quantizer.h"

#include <atomic>
#include <cstring>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/system_error.h"
#include "io/gguf_names.h"
#include "io/model_config.h"
#include "kernels/quant/dequantise.h"
#include "models/rope_config.h"
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

// One tensor of the file and where it comes from.
struct Planned {
  std::string source;
  DType type;
  int64_t heads = 0;  // rows are put in interleaved order by so many heads; 0: as they are
};

class GgufQuantizer : public CheckpointQuantizer {
 public:
  Status open(const QuantizeOptions& options, const quant::WrittenScheme& scheme);
  Result<QuantizeReport> write() override;
  void remove_partial() override {
    std::error_code ignored;
    if (writing_) fs::remove(io::NewFile::partial_path(path_), ignored);
  }

 private:
  Status check_out() const;
  Status plan_tensors();
  Status plan_rope_factors();
  Status append(io::GgufWriter& writer, const kernels::Context& ctx, const Planned& planned) const;

  QuantizeOptions options_;
  fs::path path_;
  const quant::WrittenScheme* scheme_ = nullptr;
  FloatModel model_;
  io::GgufMetadata metadata_;
  std::vector<io::TensorToCome> tensors_;
  std::vector<Planned> planned_;     // beside tensors_, but for the first where there are rope_factors_
  std::vector<float> rope_factors_;  // divisors of frequencies, or none
  std::unique_ptr<ThreadPool> pool_;
  std::atomic<bool> writing_ = false;
};

Status GgufQuantizer::open(const QuantizeOptions& options, const quant::WrittenScheme& scheme) {
  options_ = options;
  path_ = options.out;
  scheme_ = &scheme;
  CHORAL_RETURN_IF_ERROR(check_out());
  CHORAL_TRY(model_, FloatModel::open(options, scheme));
  CHORAL_TRY(metadata_, io::gguf_metadata_of(model_.config));
  metadata_.set_string("general.type", "model");
  std::error_code ignored;
  metadata_.set_string("general.name", fs::weakly_canonical(model_.location.directory, ignored).filename().string());
  metadata_.set_u32("general.file_type", file_type(scheme_->codes));
  metadata_.set_u32("general.quantization_version", kQuantizationVersion);
  CHORAL_TRY(const auto generation, io::load_generation_config(model_.location));
  CHORAL_RETURN_IF_ERROR(io::put_gguf_sampling(generation, metadata_));
  CHORAL_RETURN_IF_ERROR(add_tokenizer_keys(model_, metadata_));
  CHORAL_RETURN_IF_ERROR(plan_rope_factors());
  CHORAL_RETURN_IF_ERROR(plan_tensors());
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

// llama3's scaling as GGUF says it: what each frequency is divided by.
Status GgufQuantizer::plan_rope_factors() {
  CHORAL_TRY(const auto scaling, model_.config.get_map_or_empty("rope_scaling"));
  CHORAL_TRY(const auto type, scaling.get_string_or("rope_type", "default"));
  if (type != "llama3") return {};
  CHORAL_TRY(const int64_t hidden, model_.config.get_int("hidden_size", io::kPositive));
  CHORAL_TRY(const int64_t heads, model_.config.get_int("num_attention_heads", io::kPositive));
  CHORAL_TRY(const int64_t head_dim, model_.config.get_int_or("head_dim", hidden / heads, io::kPositive));
  CHORAL_TRY(const int64_t positions, model_.config.get_int("max_position_embeddings", io::kPositive));
  CHORAL_TRY(auto params, models::read_rope_config(model_.config, head_dim, /*max_positions=*/1, positions));
  CHORAL_TRY(const auto scaled, kernels::RotaryTable::make(params));
  params.scaling = kernels::RotaryScaling::kNone;
  CHORAL_TRY(const auto plain, kernels::RotaryTable::make(params));
  for (size_t i = 0; i < plain.inv_freq().size(); ++i) rope_factors_.push_back(plain.inv_freq()[i] / scaled.inv_freq()[i]);
  tensors_.push_back({"rope_freqs.weight", DType::kF32, {std::ssize(rope_factors_)}});
  return {};
}

Status GgufQuantizer::plan_tensors() {
  CHORAL_TRY(const auto classes, model_.config.get_strings("architectures"));
  const auto architecture = io::gguf_architecture_of(classes.front());
  if (!architecture) return unsupported("{}: GGUF has no architecture of this name", classes.front());
  const bool interleaved = architecture->interleaved_qk;
  CHORAL_TRY(const bool tied, model_.config.get_bool_or("tie_word_embeddings", false));
  CHORAL_TRY(const int64_t vocabulary, model_.config.get_int("vocab_size", io::kPositive));
  CHORAL_TRY(const int64_t heads, model_.config.get_int("num_attention_heads", io::kPositive));
  CHORAL_TRY(const int64_t kv_heads, model_.config.get_int_or("num_key_value_heads", heads, io::kPositive));
  for (const std::string& name : model_.checkpoint->names()) {
    if (name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight")) continue;
    const auto gguf = io::gguf_tensor_name(*architecture, name);
    if (gguf.empty()) return unsupported("tensor {}: GGUF has no name for it in a model of {}", name, classes.front());
    CHORAL_TRY(const auto tensor, model_.checkpoint->find(name));
    const auto& view = tensor.view;
    if (!is_float(view.dtype)) return unsupported("tensor {} is stored as {}, not as a float", name, dtype_name(view.dtype));
    Planned planned{.source = name, .type = DType::kF32};
    const bool by_row = name == "model.embed_tokens.weight" || name == "lm_head.weight";
    if (by_row && view.rows() != vocabulary) {
      return corrupt("tensor {} has {} rows, but {} is {}", name, view.rows(), model_.config.path_of("vocab_size"), vocabulary);
    }
    if (model_.quantised_layer(name) != nullptr) {
      planned.type = scheme_->codes;
    } else if (by_row && view.cols() % 32 == 0) {
      planned.type = DType::kQ8_0;
    } else if (view.shape.rank() == 2) {
      planned.type = view.dtype;  // of a layer that is ignored
    }
    if (interleaved && name.find(".self_attn.q_proj.") != name.npos) planned.heads = heads;
    if (interleaved && name.find(".self_attn.k_proj.") != name.npos) planned.heads = kv_heads;
    if (planned.heads > 0 && view.shape[0] % (2 * planned.heads) != 0) {
      return corrupt("tensor {} has {} rows, which is no even number for each of {} heads", name, view.shape[0], planned.heads);
    }
    tensors_.push_back({gguf, planned.type, view.shape});
    planned_.push_back(std::move(planned));
  }
  return {};
}

Status GgufQuantizer::append(io::GgufWriter& writer, const kernels::Context& ctx, const Planned& planned) const {
  CHORAL_TRY(const auto source, model_.checkpoint->find(planned.source));
  const TensorView& view = source.view;
  Tensor made;
  if (facts(planned.type).is_block) {
    CHORAL_TRY(auto rounded, quant::round_to_blocks(ctx, view, planned.type, planned.source));
    made = std::move(rounded.codes);
  } else {
    CHORAL_TRY(made, Tensor::allocate(planned.type, view.shape));
    for (int64_t r = 0; r < view.rows(); ++r) {
      std::byte* to = made.data() + r * row_bytes(planned.type, view.cols());
      if (planned.type == view.dtype) {
        std::memcpy(to, view.row(r), static_cast<size_t>(row_bytes(view.dtype, view.cols())));
      } else {
        kernels::dequantise_row(view.dtype, view.row(r), view.cols(), reinterpret_cast<float*>(to));
      }
    }
  }
  model_.checkpoint->release(planned.source);
  if (planned.heads > 0) {
    // A bias is one row of elements, a weight is rows.
    const int64_t rows = view.shape[0], size = made.size_bytes() / rows;
    const auto order = io::half_split_order(rows, planned.heads);
    CHORAL_TRY(auto ordered, Tensor::allocate(planned.type, view.shape));
    for (int64_t i = 0; i < rows; ++i) std::memcpy(ordered.data() + order[i] * size, made.data() + i * size, size);
    made = std::move(ordered);
  }
  return writer.append({made.data(), static_cast<size_t>(made.size_bytes())});
}

Result<QuantizeReport> GgufQuantizer::write() {
  writing_ = true;
  CHORAL_TRY(const auto writer, io::GgufWriter::create(path_, metadata_, tensors_));
  if (!rope_factors_.empty()) CHORAL_RETURN_IF_ERROR(writer->append(std::as_bytes(std::span(rope_factors_))));
  Arena scratch;
  const kernels::Context ctx{*pool_, cpu_level(), scratch};
  double done = 0;
  for (const Planned& planned : planned_) {
    CHORAL_TRY(const auto source, model_.checkpoint->find(planned.source));
    if (options_.on_progress) {
      options_.on_progress({"write", planned.source, done / static_cast<double>(model_.checkpoint->total_bytes())});
    }
    done += static_cast<double>(source.view.size_bytes());
    CHORAL_RETURN_IF_ERROR(append(*writer, ctx, planned));
  }
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
