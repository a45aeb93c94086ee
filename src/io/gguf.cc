#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/printable.h"
#include "io/mapped_file.h"
#include "io/name_hint.h"

namespace choral::io {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCount = "split.count", kNumber = "split.no", kTensors = "split.tensors.count";
constexpr IntRange kParts{0, 65535};  // as its type in files has it

Result<GgufHeader> read_header(const FileBytes& file, const GgufLimits& limits) {
  auto header = parse_gguf(file.bytes(), file.path(), limits);
  CHORAL_RETURN_IF_ERROR(file.check_unchanged());  // says more than what is broken in what was written to meanwhile
  return header;
}

// The files of a split model in order, of which `path` is one.
Result<std::vector<fs::path>> parts_of(const fs::path& path, const ConfigMap& metadata) {
  CHORAL_TRY(const int64_t count, metadata.get_int(kCount, kParts));
  CHORAL_TRY(const int64_t number, metadata.get_int(kNumber, {0, count - 1}));
  const auto part = gguf_part(path.filename().string());
  if (!part || part->number != number + 1 || part->count != count) {
    const GgufPart own{.stem = "NAME", .count = count};
    return invalid_argument(
        "{} is file {} of the {} that its model was split into, which find each other by their names: give it its name back, {}",
        path.string(), number + 1, count, own.name(number + 1));
  }
  std::vector<fs::path> paths;
  for (int64_t i = 1; i <= count; ++i) {
    paths.push_back(path.parent_path() / part->name(i));
    std::error_code error;
    if (fs::exists(paths.back(), error)) continue;
    return not_found("{} is one of {} files of a model, and {} is missing; fetch all of them into one folder", path.string(),
                     count, paths.back().string());
  }
  return paths;
}

// Puts the tensors of the part `number` beside those of the parts before it.
Status add_part(GgufHeader part, std::string_view path, uint32_t number, const GgufLimits& limits, GgufHeader& whole) {
  CHORAL_TRY(const int64_t own_number, part.metadata.get_int(kNumber, kParts));
  const auto count = whole.metadata.find(kCount)->as_int();
  CHORAL_TRY(const int64_t own_count, part.metadata.get_int(kCount, kParts));
  if (own_number != number || own_count != count) {
    return corrupt("{} says that it is file {} of {}, by its name it is file {} of {}; the files are of different models", path,
                   own_number + 1, own_count, number + 1, *count);
  }
  if (whole.tensors.size() + part.tensors.size() > limits.max_tensors) {
    return too_large("{}: with it the model has more than {} tensors", path, limits.max_tensors);
  }
  for (GgufTensor& tensor : part.tensors) {
    tensor.part = number;
    whole.tensors.push_back(std::move(tensor));
  }
  return {};
}

Status finish_parts(GgufHeader& whole, std::string_view path) {
  std::sort(whole.tensors.begin(), whole.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(whole.tensors.begin(), whole.tensors.end(),
                                        [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != whole.tensors.end()) {
    return corrupt("{}: the tensor '{}' stands in two files of the model, {} and {}", path, printable(twice->name),
                   twice->part + 1, std::next(twice)->part + 1);
  }
  CHORAL_TRY(const int64_t tensors, whole.metadata.get_int_or(kTensors, std::ssize(whole.tensors), {0, INT64_MAX}));
  if (tensors != std::ssize(whole.tensors)) {
    return corrupt("{}: the model's files hold {} tensors, and should hold {}; fetch them again", path, whole.tensors.size(),
                   tensors);
  }
  return {};
}

}  // namespace

std::string GgufPart::name(int64_t of) const { return fmt::format("{}-{:05}-of-{:05}.gguf", stem, of, count); }

std::optional<GgufPart> gguf_part(std::string_view file_name) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (file_name.size() <= kForm.size()) return std::nullopt;
  GgufPart part{.stem = std::string(file_name.substr(0, file_name.size() - kForm.size()))};
  const std::string_view ending = file_name.substr(part.stem.size());
  for (size_t i = 1; i < 6; ++i) {
    const char a = ending[i], b = ending[i + 9];
    if (a < '0' || a > '9' || b < '0' || b > '9') return std::nullopt;
    part.number = 10 * part.number + (a - '0');
    part.count = 10 * part.count + (b - '0');
  }
  if (part.number < 1 || part.number > part.count || part.name(part.number) != file_name) return std::nullopt;
  return part;
}

void keep_first_parts(std::vector<std::string>& file_names) {
  std::erase_if(file_names, [](const std::string& name) {
    const auto part = gguf_part(name);
    return part && part->number > 1;
  });
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const fs::path& path, const GgufLimits& limits) {
  CHORAL_TRY(std::shared_ptr<const FileBytes> file, MappedFile::open(path));
  CHORAL_TRY(GgufHeader header, read_header(*file, limits));
  CHORAL_TRY(const int64_t count, header.metadata.get_int_or(kCount, 0, kParts));
  if (count > 1) return open_parts(path, std::move(file), std::move(header), limits);
  return std::shared_ptr<const GgufFile>(new GgufFile({std::move(file)}, std::move(header)));
}

// `named`: the file `path`, which is read already.
Result<std::shared_ptr<const GgufFile>> GgufFile::open_parts(const fs::path& path, std::shared_ptr<const FileBytes> named,
                                                             GgufHeader header_of_named, const GgufLimits& limits) {
  CHORAL_TRY(const auto paths, parts_of(path, header_of_named.metadata));
  GgufHeader whole;
  std::vector<std::shared_ptr<const FileBytes>> parts;
  for (const fs::path& part : paths) {
    const bool is_named = part == path;
    if (is_named) {
      parts.push_back(named);
    } else {
      CHORAL_TRY(parts.emplace_back(), MappedFile::open(part));
    }
    CHORAL_TRY(GgufHeader header, is_named ? Result<GgufHeader>(std::move(header_of_named)) : read_header(*parts.back(), limits));
    if (parts.size() == 1) whole = {.version = header.version, .metadata = header.metadata, .tensors = {}};
    CHORAL_RETURN_IF_ERROR(
        add_part(std::move(header), parts.back()->path(), static_cast<uint32_t>(parts.size() - 1), limits, whole));
  }
  CHORAL_RETURN_IF_ERROR(finish_parts(whole, parts.front()->path()));
  return std::shared_ptr<const GgufFile>(new GgufFile(std::move(parts), std::move(whole)));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::parse(std::shared_ptr<const FileBytes> file, const GgufLimits& limits) {
  CHORAL_TRY(GgufHeader header, read_header(*file, limits));
  CHORAL_TRY(const int64_t count, header.metadata.get_int_or(kCount, 0, kParts));
  if (count > 1) return unsupported("{} is one of {} files, and has to be whole here; join them first", file->path(), count);
  return std::shared_ptr<const GgufFile>(new GgufFile({std::move(file)}, std::move(header)));
}

Status GgufFile::check_unchanged() const {
  for (const auto& part : parts_) CHORAL_RETURN_IF_ERROR(part->check_unchanged());
  return {};
}

Result<TensorView> GgufFile::find(std::string_view name) const {
  const GgufTensor* tensor = header_.find(name);
  if (tensor == nullptr) {
    NameHint hint(name);
    for (const auto& candidate : header_.tensors) hint.consider(candidate.name);
    return not_found("{} has no tensor '{}'{}", path(), printable(name), hint.text());
  }
  return TensorView{parts_[tensor->part]->bytes().data() + tensor->offset, tensor->dtype, tensor->shape, kCpuDevice};
}

void GgufFile::release(std::string_view name) const {
  const GgufTensor* tensor = header_.find(name);
  if (tensor == nullptr) return;
  const FileBytes& part = *parts_[tensor->part];
  part.release(part.bytes().subspan(tensor->offset, tensor->size_bytes));
}

}  // namespace choral::io
