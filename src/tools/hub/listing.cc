#include "tools/hub/listing.h"

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "base/nearest_name.h"
#include "base/printable.h"
#include "base/size_text.h"
#include "io/gguf.h"
#include "requests/json.h"

namespace choral::tools {
namespace {

using requests::Json;

constexpr size_t kMostFiles = 10'000;
constexpr size_t kMostShown = 20;

bool is_hex(std::string_view text, size_t digits) { return text.size() == digits && is_lower_hex(text); }

bool is_plain_path(std::string_view name) {
  constexpr size_t kMostBytes = 1000, kMostSegment = 250;
  if (name.empty() || name.size() > kMostBytes) return false;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7F) return false;
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const auto segment = name.substr(begin, end - begin);
    if (segment.empty() || segment == "." || segment == ".." || segment.size() > kMostSegment) return false;
    begin = end + 1;
  }
  return true;
}

std::string text_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Status broken(std::string_view what) { return corrupt("the hub's answer is not understood: {}", what); }

Result<HubFile> read_file(const Json& json) {
  if (!json.is_object()) return broken("a file is no object");
  HubFile file;
  file.name = text_of(json, "rfilename");
  if (!is_plain_path(file.name)) return broken(fmt::format("'{}' is no name of a file", printable(file.name, 100)));
  const auto lfs = json.find("lfs");
  const bool is_large = lfs != json.end() && lfs->is_object();
  const Json& facts = is_large ? *lfs : json;
  file.hash = is_large ? text_of(facts, "sha256") : text_of(json, "blobId");
  const auto size = facts.find("size");
  if (size == facts.end() || !size->is_number_unsigned() || !is_hex(file.hash, is_large ? 64 : 40))
    return broken(fmt::format("'{}' has no size or no hash", printable(file.name, 100)));
  CHORAL_RETURN_IF_ERROR(requests::read_value("size", *size, file.size_bytes));
  return file;
}

bool is_gguf(const HubFile& file) { return file.name.ends_with(".gguf"); }

const HubFile* find(const HubListing& listing, std::string_view name) {
  const auto found = std::find_if(listing.files.begin(), listing.files.end(), [&](const auto& f) { return f.name == name; });
  return found == listing.files.end() ? nullptr : &*found;
}

template <class Pick>
std::vector<HubFile> picked(const HubListing& listing, Pick pick) {
  std::vector<HubFile> out;
  std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(out), pick);
  return out;
}

// "a.gguf (4.0 GiB), b.gguf (7.2 GiB)"
std::string shown_files(const std::vector<HubFile>& files) {
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kMostShown); ++i)
    text += fmt::format("{}{} ({})", i > 0 ? ", " : "", printable(files[i].name, 100), size_text(files[i].size_bytes));
  if (files.size() > kMostShown) text += fmt::format(" and {} more", files.size() - kMostShown);
  return text;
}

// A model in one file, or which one a part belongs to.
std::string whole_of(const HubFile& file) {
  const auto part = io::gguf_part(file.name);
  return part ? part->name(1) : file.name;
}

// `file`, and with one part of a model the others.
std::vector<HubFile> with_other_parts(const HubListing& listing, const HubFile& file) {
  return picked(listing, [whole = whole_of(file)](const HubFile& other) { return whole_of(other) == whole; });
}

bool are_of_one_model(const std::vector<HubFile>& ggufs) {
  return !ggufs.empty() &&
         std::all_of(ggufs.begin(), ggufs.end(), [&](const HubFile& f) { return whole_of(f) == whole_of(ggufs.front()); });
}

Result<std::vector<HubFile>> files_named(const HubListing& listing, const std::string& name) {
  if (const auto* file = find(listing, name)) return with_other_parts(listing, *file);
  std::vector<HubFile> like;
  std::vector<std::string> names;
  for (const auto& file : listing.files) {
    names.push_back(file.name);
    if (is_gguf(file) && !name.empty() && lower(file.name).find(lower(name)) != std::string::npos) like.push_back(file);
  }
  if (are_of_one_model(like)) return with_other_parts(listing, like.front());
  if (like.size() > 1)
    return invalid_argument("'{}' stands in {} files; give one's name: {}", name, like.size(), shown_files(like));
  const std::string nearest = nearest_name(name, names);
  return not_found("the repository has no file '{}'{}", name,
                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

// What stands beside the weights: configs, tokenizers, templates.
bool is_small_companion(std::string_view name) {
  if (name == "1_Pooling/config.json") return true;
  return name.find('/') == name.npos &&
         (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".jinja"));
}

bool is_weight(std::string_view name) {
  return name.find('/') == name.npos && name.ends_with(".safetensors") && !name.starts_with("consolidated") &&
         !name.starts_with("adapter_model") && !name.starts_with("new_embeddings");
}

}  // namespace

Result<HubListing> read_listing(std::string_view json) {
  CHORAL_TRY(const Json parsed, requests::parse_object(json, "the hub's answer"));
  HubListing listing;
  listing.commit = text_of(parsed, "sha");
  if (!is_hex(listing.commit, 40)) return broken("it names no commit");
  const auto files = parsed.find("siblings");
  if (files == parsed.end() || !files->is_array()) return broken("it lists no files");
  if (files->size() > kMostFiles) return too_large("the repository has {} files; {} are allowed", files->size(), kMostFiles);
  for (const auto& entry : *files) {
    CHORAL_TRY(listing.files.emplace_back(), read_file(entry));
  }
  return listing;
}

Result<std::vector<HubFile>> wanted_files(const HubListing& listing, std::span<const std::string> names) {
  std::vector<HubFile> wanted;
  for (const auto& name : names) {
    CHORAL_TRY(const auto files, files_named(listing, name));
    for (const HubFile& file : files) {
      const bool new_one = std::none_of(wanted.begin(), wanted.end(), [&](const HubFile& w) { return w.name == file.name; });
      if (new_one) wanted.push_back(file);
    }
  }
  if (!wanted.empty()) return wanted;

  const auto with_companions = [&](auto is_weight_file) {
    return picked(listing, [&](const HubFile& f) { return is_small_companion(f.name) || is_weight_file(f.name); });
  };
  if (find(listing, "adapter_config.json") != nullptr) {
    std::string weights;
    for (const char* name : {"adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt"}) {
      if (weights.empty() && find(listing, name) != nullptr) weights = name;
    }
    return with_companions([&](std::string_view name) { return name == weights || name.starts_with("new_embeddings."); });
  }
  if (std::any_of(listing.files.begin(), listing.files.end(), [](const auto& f) { return is_weight(f.name); }))
    return with_companions(is_weight);
  const auto ggufs = picked(listing, [](const HubFile& f) { return is_gguf(f) && !f.name.starts_with("mmproj"); });
  if (are_of_one_model(ggufs)) return ggufs;
  if (!ggufs.empty())
    return invalid_argument("the repository has {} GGUF files; choose with --file, e.g. --file Q4_K_M: {}", ggufs.size(),
                            shown_files(ggufs));
  return unsupported("the repository has neither safetensors nor GGUF nor an adapter; it has {}", shown_files(listing.files));
}

}  // namespace choral::tools
