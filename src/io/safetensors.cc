#include "io/safetensors.h"

#include "base/printable.h"
#include "io/mapped_file.h"
#include "io/name_hint.h"

namespace choral::io {

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& path,
                                                                     const SafetensorsLimits& limits) {
  CHORAL_TRY(auto file, MappedFile::open(path));
  return parse(std::move(file), limits);
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::parse(std::shared_ptr<const FileBytes> file,
                                                                      const SafetensorsLimits& limits) {
  auto header = parse_safetensors(file->bytes(), file->path(), limits);
  CHORAL_RETURN_IF_ERROR(file->check_unchanged());  // says more than what is broken in what was written to meanwhile
  if (!header.ok()) return std::move(header).status();
  return std::shared_ptr<const SafetensorsFile>(new SafetensorsFile(std::move(file), std::move(*header)));
}

Result<TensorView> SafetensorsFile::find(std::string_view name) const {
  const SafetensorsEntry* entry = header_.find(name);
  if (entry == nullptr) {
    NameHint hint(name);
    for (const auto& candidate : header_.entries) hint.consider(candidate.name);
    return not_found("{} has no tensor '{}'{}", file_->path(), printable(name), hint.text());
  }
  if (entry->rank > Shape::kMaxRank) {
    return unsupported("{}: tensor '{}' has {} dimensions, at most {} are supported", file_->path(), printable(name), entry->rank,
                       Shape::kMaxRank);
  }
  if (entry->begin == entry->end) {
    return unsupported("{}: tensor '{}' of shape {} is empty; the file was saved without gathering its weights", file_->path(),
                       printable(name), entry->shape.to_string());
  }
  return TensorView{file_->bytes().data() + header_.data_offset + entry->begin, entry->dtype, entry->shape, kCpuDevice};
}

void SafetensorsFile::release(std::string_view name) const {
  const SafetensorsEntry* entry = header_.find(name);
  if (entry != nullptr) file_->release(file_->bytes().subspan(header_.data_offset + entry->begin, entry->end - entry->begin));
}

}  // namespace choral::io
