#include "io/checkpoint.h"

#include "base/printable.h"
#include "io/checkpoint_sources.h"
#include "io/dense_stages.h"
#include "io/model_location.h"
#include "io/name_hint.h"

namespace choral::io {

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::filesystem::path& path) {
  CHORAL_TRY(const ModelLocation location, locate_model(path));
  return open(location);
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const ModelLocation& location) {
  if (location.kind == ModelLocation::Kind::kGguf) return open_gguf_checkpoint(location.gguf);
  if (location.kind == ModelLocation::Kind::kSafetensors) return open_safetensors_checkpoint(location.file);

  const auto& directory = location.directory;
  CHORAL_TRY(const auto stages, read_dense_stages(directory));
  FilesBeside beside;
  for (const auto& stage : stages) beside.emplace_back(dense_stage_name(beside.size()) + '.', stage.weights);
  if (is_file(directory / "model.safetensors")) return open_safetensors_checkpoint(directory / "model.safetensors", beside);
  const auto index = directory / "model.safetensors.index.json";
  if (is_file(index)) return open_sharded_checkpoint(index, beside);
  if (is_file(directory / "pytorch_model.bin") || is_file(directory / "pytorch_model.bin.index.json")) {
    return unsupported("{} holds its weights as pytorch_model.bin, a format that can run code; convert it to safetensors",
                       directory.string());
  }
  if (is_file(directory / "adapter_model.safetensors")) {
    return invalid_argument("{} is a LoRA adapter, not a model; load the base model it names and pass this as an adapter",
                            directory.string());
  }
  return not_found("{} holds no weights (looked for model.safetensors, model.safetensors.index.json and one .gguf file)",
                   directory.string());
}

bool Checkpoint::add_identity(const FileBytes& file, std::vector<FileIdentity>& identity) {
  std::error_code error;
  const auto path = std::filesystem::canonical(file.path(), error);
  std::string content = file.identity();
  if (error || content.empty()) return false;
  identity.push_back({path.string(), std::move(content)});
  return true;
}

Status Checkpoint::missing(std::string_view name, std::string_view where) const {
  NameHint hint(name);
  for (const auto& candidate : names_) hint.consider(candidate);
  return not_found("{} has no tensor '{}'{}", where, printable(name), hint.text());
}

}  // namespace choral::io
