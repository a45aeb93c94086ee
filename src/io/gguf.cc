#include "io/gguf.h"

#include "base/printable.h"
#include "io/mapped_file.h"
#include "io/name_hint.h"

namespace choral::io {

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path, const GgufLimits& limits) {
  CHORAL_TRY(auto file, MappedFile::open(path));
  return parse(std::move(file), limits);
}

Result<std::shared_ptr<const GgufFile>> GgufFile::parse(std::shared_ptr<const FileBytes> file, const GgufLimits& limits) {
  auto header = parse_gguf(file->bytes(), file->path(), limits);
  CHORAL_RETURN_IF_ERROR(file->check_unchanged());  // says more than what is broken in what was written to meanwhile
  if (!header.ok()) return std::move(header).status();
  return std::shared_ptr<const GgufFile>(new GgufFile(std::move(file), std::move(*header)));
}

Result<TensorView> GgufFile::find(std::string_view name) const {
  const GgufTensor* tensor = header_.find(name);
  if (tensor == nullptr) {
    NameHint hint(name);
    for (const auto& candidate : header_.tensors) hint.consider(candidate.name);
    return not_found("{} has no tensor '{}'{}", file_->path(), printable(name), hint.text());
  }
  return TensorView{file_->bytes().data() + tensor->offset, tensor->dtype, tensor->shape, kCpuDevice};
}

void GgufFile::release(std::string_view name) const {
  const GgufTensor* tensor = header_.find(name);
  if (tensor != nullptr) file_->release(file_->bytes().subspan(tensor->offset, tensor->size_bytes));
}

}  // namespace choral::io
