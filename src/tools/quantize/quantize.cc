#include "tools/quantize.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>

#include "base/arena.h"
#include "base/cpu_level.h"
#include "base/system_error.h"
#include "io/checkpoint_writer.h"
#include "io/dense_stages.h"
#include "io/mapped_file.h"
#include "quant/quant_config.h"
#include "quant/weight_source.h"
#include "tools/quantize/activation_ranges.h"
#include "tools/quantize/description.h"
#include "tools/quantize/float_model.h"
#include "tools/quantize/gguf_quantizer.h"
#include "tools/quantize/new_folder.h"

namespace choral::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = 64 << 20;

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
                                   "modules.json",
                                   "1_Pooling",
                                   "config_sentence_transformers.json",
                                   "sentence_bert_config.json",
                                   "LICENSE",
                                   "LICENSE.txt",
                                   "LICENSE.md"};

Status write_text(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), std::ssize(text));
  file.close();
  return file ? Status() : system_error(errno, "cannot write " + path.string());
}

Status check_calibration(const quant::WrittenScheme& scheme, bool given) {
  if (scheme.input_is_fixed() == given) return {};
  if (given) return invalid_argument("--calibration is for --scheme w8a8; {} needs no text", scheme.name);
  return invalid_argument(
      "--scheme {}: its scales of activations are found by reading a text; give one with --calibration FILE, or choose "
      "w8a8_dynamic, which finds them for each row as it comes",
      scheme.name);
}

class Quantizer : public CheckpointQuantizer {
 public:
  Status open(const QuantizeOptions& options, const quant::WrittenScheme& scheme);
  Result<QuantizeReport> write() override;
  void remove_partial() override { folder_->remove_partial(); }

 private:
  Status check_out() const;
  Status plan_tensors();
  Status find_inputs();
  Result<quant::LayerValues> values_of(const kernels::Context& ctx, const LinearLayer& layer, const TensorView& weight) const;
  quant::LayerToWrite to_write(const LinearLayer& layer, const TensorView& weight) const {
    return {.rows = layer.rows, .k = layer.k, .stored = weight.dtype, .row_parallel = layer.row_parallel};
  }
  Status write_tensors(io::CheckpointWriter& writer);
  Status copy_files() const;

  QuantizeOptions options_;
  const quant::WrittenScheme* scheme_ = nullptr;
  FloatModel model_;
  std::vector<io::TensorToCome> tensors_;                    // as they will be written
  std::map<std::string, std::string_view> types_;            // ModelSlim's
  std::map<std::string_view, kernels::StaticQuant> inputs_;  // of layers, where the scheme fixes them
  int64_t calibration_tokens_ = 0;
  std::string config_json_, description_;  // of the new folder; the second only of ModelSlim
  std::unique_ptr<NewFolder> folder_;
  std::unique_ptr<ThreadPool> pool_;
};

Status Quantizer::open(const QuantizeOptions& options, const quant::WrittenScheme& scheme) {
  options_ = options;
  scheme_ = &scheme;
  CHORAL_TRY(model_, FloatModel::open(options, scheme));
  CHORAL_TRY(folder_, NewFolder::plan(options.out, options.force));
  CHORAL_RETURN_IF_ERROR(check_out());
  CHORAL_RETURN_IF_ERROR(plan_tensors());
  CHORAL_TRY(config_json_, io::read_whole_file(model_.location.directory / "config.json", kMaxConfigBytes));
  if (scheme_->format == "modelslim") {
    CHORAL_TRY(description_, modelslim_description(*scheme_, model_.layers, types_));
  } else {
    CHORAL_TRY(config_json_, with_quantization_config(config_json_, *scheme_, model_.layers));
  }
  CHORAL_TRY(pool_, ThreadPool::make(options.threads > 0 ? options.threads : ThreadPool::default_size()));
  return {};
}

// The model itself is not replaced, nor a folder that it stands in.
Status Quantizer::check_out() const {
  std::error_code error;
  const auto from = fs::weakly_canonical(model_.location.directory, error);
  const auto [differs, ignored] = std::ranges::mismatch(folder_->path(), from);
  if (differs != folder_->path().end()) return {};
  return invalid_argument("{} is where the model {} stands; name another folder", folder_->path().string(), from.string());
}

Status Quantizer::plan_tensors() {
  for (const std::string& name : model_.checkpoint->names()) {
    if (io::is_of_dense_stage(name)) continue;  // in a file of its own, which goes along
    CHORAL_TRY(const auto tensor, model_.checkpoint->find(name));
    if (tensor.transposed || !tensor.parts.empty()) {
      return unsupported(
          "tensor {} has no place of its own in its file, whose tensors are not taken apart here; load the model with "
          "--quantization instead, or write --format gguf",
          name);
    }
    const LinearLayer* layer = model_.quantised_layer(name);
    if (layer == nullptr) {
      tensors_.push_back({name, tensor.view.dtype, tensor.view.shape});
      types_.emplace(name, "FLOAT");
      continue;
    }
    types_.emplace(name, scheme_->label);
    for (const auto& part : scheme_->parts(*scheme_, to_write(*layer, tensor.view))) {
      tensors_.push_back({layer->name + "." + part.name, part.dtype, part.shape});
      types_.insert_or_assign(tensors_.back().name, scheme_->label);
    }
  }
  return {};
}

Status Quantizer::find_inputs() {
  CHORAL_TRY(const auto ranges,
             observe_activations(options_.model, *options_.calibration, options_.threads, options_.on_progress));
  calibration_tokens_ = ranges.tokens;
  const auto offset =
      scheme_->input == quant::WrittenInput::kFixedWithOffset ? quant::InputOffset::kOfRange : quant::InputOffset::kNone;
  for (const LinearLayer& layer : model_.layers) {
    if (layer.ignored) continue;
    const auto range = ranges.by_layer.find(layer.name);
    const bool seen = range != ranges.by_layer.end();
    CHORAL_TRY(inputs_[layer.name], quant::fixed_input(seen ? range->second : quant::InputRange(), offset, layer.name));
  }
  return {};
}

Result<quant::LayerValues> Quantizer::values_of(const kernels::Context& ctx, const LinearLayer& layer,
                                                const TensorView& weight) const {
  CHORAL_TRY(auto rounded, scheme_->round(ctx, weight, layer.name + std::string(kWeightSuffix)));
  quant::LayerValues values{.weight = std::move(rounded)};
  if (!scheme_->input_is_fixed()) return values;
  values.input = inputs_.find(layer.name)->second;
  const auto name = layer.name + ".bias";
  if (!model_.checkpoint->contains(name)) return values;
  CHORAL_TRY(const auto bias, model_.checkpoint->find(name));
  if (bias.view.shape != Shape{layer.rows} || !is_float(bias.view.dtype)) {
    return corrupt("tensor {} is {} of {}, but the layer has {} channels", name, bias.view.shape.to_string(),
                   dtype_name(bias.view.dtype), layer.rows);
  }
  values.bias.resize(layer.rows);
  quant::read_vector(bias, {}, values.bias);
  return values;
}

Result<QuantizeReport> Quantizer::write() {
  if (scheme_->input_is_fixed()) CHORAL_RETURN_IF_ERROR(find_inputs());
  CHORAL_RETURN_IF_ERROR(folder_->make());
  CHORAL_TRY(const auto writer, io::CheckpointWriter::create(folder_->partial(), tensors_, options_.max_shard_bytes));
  CHORAL_RETURN_IF_ERROR(write_tensors(*writer));
  CHORAL_RETURN_IF_ERROR(writer->finish());
  CHORAL_RETURN_IF_ERROR(write_text(folder_->partial() / "config.json", config_json_));
  if (!description_.empty()) {
    CHORAL_RETURN_IF_ERROR(write_text(folder_->partial() / "quant_model_description.json", description_));
  }
  CHORAL_RETURN_IF_ERROR(copy_files());
  CHORAL_RETURN_IF_ERROR(model_.checkpoint->check_unchanged());
  CHORAL_RETURN_IF_ERROR(folder_->commit());
  const auto ignored = model_.ignored_layers();
  return QuantizeReport{.quantised_layers = std::ssize(model_.layers) - ignored,
                        .float_layers = ignored,
                        .bytes_before = static_cast<int64_t>(model_.checkpoint->total_bytes()),
                        .bytes_after = writer->total_bytes(),
                        .weight_files = writer->files(),
                        .calibration_tokens = calibration_tokens_};
}

Status Quantizer::write_tensors(io::CheckpointWriter& writer) {
  Arena scratch;
  const kernels::Context ctx{*pool_, cpu_level(), scratch};
  double done = 0;
  for (const std::string& name : model_.checkpoint->names()) {
    if (io::is_of_dense_stage(name)) continue;  // in a file of its own, which goes along
    CHORAL_TRY(const auto tensor, model_.checkpoint->find(name));
    if (options_.on_progress) options_.on_progress({"write", name, done / static_cast<double>(model_.checkpoint->total_bytes())});
    done += static_cast<double>(tensor.view.size_bytes());
    if (const LinearLayer* layer = model_.quantised_layer(name); layer != nullptr) {
      CHORAL_TRY(auto values, values_of(ctx, *layer, tensor.view));
      model_.checkpoint->release(name);
      for (const auto& part : scheme_->parts(*scheme_, to_write(*layer, tensor.view))) {
        CHORAL_TRY(const auto made, part.make(values).while_(name));
        CHORAL_RETURN_IF_ERROR(writer.append({made.view().data, static_cast<size_t>(made.size_bytes())}));
      }
    } else {
      CHORAL_RETURN_IF_ERROR(writer.append({tensor.view.data, static_cast<size_t>(tensor.view.size_bytes())}));
      model_.checkpoint->release(name);
    }
  }
  return {};
}

Status Quantizer::copy_files() const {
  std::vector<fs::path> names(std::begin(kCopied), std::end(kCopied));
  CHORAL_TRY(const auto stages, io::read_dense_stages(model_.location.directory));
  for (const auto& stage : stages) names.push_back(stage.weights.parent_path().filename());
  for (const auto& name : names) {
    std::error_code error;
    if (!fs::exists(model_.location.directory / name, error)) continue;
    fs::copy(model_.location.directory / name, folder_->partial() / name, fs::copy_options::recursive, error);
    if (error) {
      return system_error(error.value(), fmt::format("cannot copy {} to {}", (model_.location.directory / name).string(),
                                                     folder_->partial().string()));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CheckpointQuantizer>> CheckpointQuantizer::open(const QuantizeOptions& options) {
  CHORAL_TRY(const quant::WrittenScheme* scheme, quant::find_written_scheme(options.scheme, options.format));
  CHORAL_RETURN_IF_ERROR(check_calibration(*scheme, options.calibration.has_value()));
  if (scheme->format == "gguf") return open_gguf_quantizer(options, *scheme);
  auto quantizer = std::make_unique<Quantizer>();
  CHORAL_RETURN_IF_ERROR(quantizer->open(options, *scheme));
  return std::unique_ptr<CheckpointQuantizer>(std::move(quantizer));
}

}  // namespace choral::tools
