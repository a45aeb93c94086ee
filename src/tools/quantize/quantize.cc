#include "tools/quantize.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/system_error.h"
#include "io/checkpoint.h"
#include "io/checkpoint_writer.h"
#include "io/hub_cache.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/model_location.h"
#include "tools/quantize/description.h"
#include "tools/quantize/linear_layers.h"
#include "tools/quantize/new_folder.h"

namespace choral::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 64 << 20;
constexpr std::string_view kWeight = ".weight";

// What goes along as it is, where a model has it.
constexpr const char* kCopied[] = {"generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "vocab.txt",
                                   "merges.txt",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "additional_chat_templates",
                                   "LICENSE",
                                   "LICENSE.txt",
                                   "LICENSE.md"};

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

Status write_text(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), std::ssize(text));
  file.close();
  return file ? Status() : system_error(errno, "cannot write " + path.string());
}

// A model's folder, which holds a float checkpoint.
Result<io::ModelLocation> locate_float_model(const QuantizeOptions& options) {
  CHORAL_TRY(const fs::path path, io::resolve_model(options.model));
  CHORAL_TRY(auto location, io::locate_model(path));
  if (location.kind == io::ModelLocation::Kind::kGguf) {
    return unsupported(
        "{} is a GGUF file, which is not quantised again here; name the float checkpoint it was made of, a folder with "
        "config.json and *.safetensors",
        location.file.string());
  }
  return location;
}

Status check_not_quantised(const io::ConfigMap& config) {
  CHORAL_TRY(const auto stored, config.get_map_or_empty("quantization_config"));
  if (stored.empty()) return {};
  CHORAL_TRY(const auto method, stored.get_string_or("quant_method", "of no name"));
  return invalid_argument("{}: the checkpoint is quantised already, by {}; quantise the float one it was made of",
                          config.path_of("quantization_config"), method);
}

class Quantizer : public CheckpointQuantizer {
 public:
  Status open(const QuantizeOptions& options);
  Result<QuantizeReport> write() override;
  void remove_partial() override { folder_->remove_partial(); }

 private:
  Status check_out() const;
  Status plan_tensors();
  Status write_tensors(io::CheckpointWriter& writer);
  Status copy_files() const;
  const LinearLayer* quantised_layer(std::string_view tensor) const;

  QuantizeOptions options_;
  const quant::WrittenScheme* scheme_ = nullptr;
  fs::path model_folder_;
  std::shared_ptr<const io::Checkpoint> checkpoint_;
  std::vector<LinearLayer> layers_;                // sorted by name
  std::vector<io::TensorToCome> tensors_;          // as they will be written
  std::map<std::string, std::string_view> types_;  // ModelSlim's
  std::string config_json_, description_;          // of the new folder; the second only of ModelSlim
  std::unique_ptr<NewFolder> folder_;
  std::unique_ptr<ThreadPool> pool_;
};

Status Quantizer::open(const QuantizeOptions& options) {
  options_ = options;
  CHORAL_TRY(scheme_, quant::find_written_scheme(options.scheme, options.format));
  CHORAL_TRY(const auto location, locate_float_model(options));
  model_folder_ = location.directory;
  const fs::path& path = location.file.empty() ? location.directory : location.file;
  CHORAL_TRY(const auto config, io::load_model_config(path));
  CHORAL_RETURN_IF_ERROR(check_not_quantised(config));
  CHORAL_TRY(folder_, NewFolder::plan(options.out, options.force));
  CHORAL_RETURN_IF_ERROR(check_out());
  CHORAL_TRY(checkpoint_, io::Checkpoint::open(path));
  CHORAL_TRY(layers_, find_linear_layers(config, options.ignore));
  std::ranges::sort(layers_, {}, &LinearLayer::name);
  if (std::ranges::all_of(layers_, &LinearLayer::ignored)) return invalid_argument("--ignore leaves no layer to quantise");
  CHORAL_RETURN_IF_ERROR(plan_tensors());
  CHORAL_TRY(config_json_, io::read_whole_file(model_folder_ / "config.json", kMaxConfigBytes));
  if (scheme_->format == "modelslim") {
    CHORAL_TRY(description_, modelslim_description(*scheme_, layers_, types_));
  } else {
    CHORAL_TRY(config_json_, with_quantization_config(config_json_, *scheme_, layers_));
  }
  CHORAL_TRY(pool_, ThreadPool::make(options.threads > 0 ? options.threads : ThreadPool::default_size()));
  return {};
}

// The model itself is not replaced, nor a folder that it stands in.
Status Quantizer::check_out() const {
  std::error_code error;
  const auto from = fs::weakly_canonical(model_folder_, error);
  const auto [differs, ignored] = std::ranges::mismatch(folder_->path(), from);
  if (differs != folder_->path().end()) return {};
  return invalid_argument("{} is where the model {} stands; name another folder", folder_->path().string(), from.string());
}

const LinearLayer* Quantizer::quantised_layer(std::string_view tensor) const {
  if (!tensor.ends_with(kWeight)) return nullptr;
  const auto layer = tensor.substr(0, tensor.size() - kWeight.size());
  const auto at = std::ranges::lower_bound(layers_, layer, {}, [](const LinearLayer& l) { return std::string_view(l.name); });
  return at != layers_.end() && at->name == layer && !at->ignored ? &*at : nullptr;
}

Status Quantizer::plan_tensors() {
  for (const LinearLayer& layer : layers_) {
    CHORAL_TRY(const auto weight, checkpoint_->find(layer.name + std::string(kWeight)));
    if (weight.view.shape != Shape{layer.rows, layer.k}) {
      return corrupt("tensor {}.weight is {}, but the layer is [{}, {}]", layer.name, weight.view.shape.to_string(), layer.rows,
                     layer.k);
    }
    if (!is_float(weight.view.dtype)) {
      return unsupported("tensor {}.weight is stored as {}; weights of float32, float16 and bfloat16 are quantised", layer.name,
                         dtype_name(weight.view.dtype));
    }
    if (!layer.ignored) CHORAL_RETURN_IF_ERROR(quant::check_written(*scheme_, layer.name, layer.rows, layer.k));
  }
  for (const std::string& name : checkpoint_->names()) {
    const LinearLayer* layer = quantised_layer(name);
    if (layer == nullptr) {
      CHORAL_TRY(const auto tensor, checkpoint_->find(name));
      tensors_.push_back({name, tensor.view.dtype, tensor.view.shape});
      types_.emplace(name, "FLOAT");
      continue;
    }
    types_.emplace(name, scheme_->label);
    for (const auto& part : scheme_->parts(*scheme_, layer->rows, layer->k)) {
      tensors_.push_back({layer->name + "." + part.name, part.dtype, part.shape});
      types_.insert_or_assign(tensors_.back().name, scheme_->label);
    }
  }
  return {};
}

Result<QuantizeReport> Quantizer::write() {
  CHORAL_RETURN_IF_ERROR(folder_->make());
  CHORAL_TRY(const auto writer, io::CheckpointWriter::create(folder_->partial(), tensors_, options_.max_shard_bytes));
  CHORAL_RETURN_IF_ERROR(write_tensors(*writer));
  CHORAL_RETURN_IF_ERROR(writer->finish());
  CHORAL_RETURN_IF_ERROR(write_text(folder_->partial() / "config.json", config_json_));
  if (!description_.empty()) {
    CHORAL_RETURN_IF_ERROR(write_text(folder_->partial() / "quant_model_description.json", description_));
  }
  CHORAL_RETURN_IF_ERROR(copy_files());
  CHORAL_RETURN_IF_ERROR(checkpoint_->check_unchanged());
  CHORAL_RETURN_IF_ERROR(folder_->commit());
  const auto ignored = std::ranges::count_if(layers_, &LinearLayer::ignored);
  return QuantizeReport{.quantised_layers = std::ssize(layers_) - ignored,
                        .float_layers = ignored,
                        .bytes_before = static_cast<int64_t>(checkpoint_->total_bytes()),
                        .bytes_after = writer->total_bytes(),
                        .weight_files = writer->files()};
}

Status Quantizer::write_tensors(io::CheckpointWriter& writer) {
  Arena scratch;
  const kernels::Context ctx{*pool_, cpu_level(), scratch};
  double done = 0;
  for (const std::string& name : checkpoint_->names()) {
    CHORAL_TRY(const auto tensor, checkpoint_->find(name));
    if (options_.on_progress) options_.on_progress(name, done / static_cast<double>(checkpoint_->total_bytes()));
    done += static_cast<double>(tensor.view.size_bytes());
    if (const LinearLayer* layer = quantised_layer(name); layer != nullptr) {
      CHORAL_TRY(auto rounded, scheme_->round(ctx, tensor.view, name));
      checkpoint_->release(name);
      for (const auto& part : scheme_->parts(*scheme_, layer->rows, layer->k)) {
        CHORAL_TRY(const auto made, part.make(rounded));
        CHORAL_RETURN_IF_ERROR(writer.append({made.view().data, static_cast<size_t>(made.size_bytes())}));
      }
    } else {
      CHORAL_RETURN_IF_ERROR(writer.append({tensor.view.data, static_cast<size_t>(tensor.view.size_bytes())}));
      checkpoint_->release(name);
    }
  }
  return {};
}

Status Quantizer::copy_files() const {
  for (const char* name : kCopied) {
    std::error_code error;
    if (!fs::exists(model_folder_ / name, error)) continue;
    fs::copy(model_folder_ / name, folder_->partial() / name, fs::copy_options::recursive, error);
    if (error) {
      return system_error(error.value(),
                          fmt::format("cannot copy {} to {}", (model_folder_ / name).string(), folder_->partial().string()));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CheckpointQuantizer>> CheckpointQuantizer::open(const QuantizeOptions& options) {
  auto quantizer = std::make_unique<Quantizer>();
  CHORAL_RETURN_IF_ERROR(quantizer->open(options));
  return std::unique_ptr<CheckpointQuantizer>(std::move(quantizer));
}

}  // namespace choral::tools
