#include "io/section_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/checksum.h"
#include "base/first_found.h"
#include "base/system_error.h"
#include "io/bounded_reader.h"
#include "io/new_file.h"

namespace choral::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "CHORALSF";
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint64_t kHeaderBytes = 128, kDataAlignment = uint64_t{2} << 20, kSectionAlignment = 4096;
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
constexpr uint64_t kMostSections = 1 << 20, kMostNameBytes = 1 << 16, kMostFacts = 64;

// As they stand in the file.
struct Header {
  char magic[8];
  uint32_t byte_order, version;
  uint64_t file_bytes, index_bytes, data_begin, sections;
  Sha256Digest digest;
  uint64_t index_checksum;
  uint64_t rest[4];  // 0
  uint64_t checksum;
};
static_assert(sizeof(Header) == kHeaderBytes);

uint64_t checksum_of(const Header& header) {
  return checksum64(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

Result<Header> read_header(std::span<const std::byte> file, std::string_view name, const SectionFileId& id) {
  if (file.size() < kHeaderBytes) return corrupt("{} has {} bytes, fewer than its header", name, file.size());
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) return corrupt("{} does not begin with {}", name, kMagic);
  if (header.byte_order != kByteOrder) return unsupported("{} was written by a machine of another byte order", name);
  if (header.version != id.version) return unsupported("{} is of version {}, not {}", name, header.version, id.version);
  if (header.checksum != checksum_of(header)) return corrupt("{} has a damaged header", name);
  if (header.digest != id.digest) return corrupt("{} holds something else than its name says", name);
  if (header.file_bytes != file.size()) return corrupt("{} has {} bytes, not {}", name, file.size(), header.file_bytes);
  if (header.data_begin > file.size() || header.data_begin == 0 || header.data_begin % kDataAlignment != 0 ||
      header.index_bytes > header.data_begin - kHeaderBytes) {
    return corrupt("{} has an index of {} bytes before data that begins at {}", name, header.index_bytes, header.data_begin);
  }
  if (header.sections > kMostSections) return too_large("{} has {} sections", name, header.sections);
  return header;
}

Result<Section> read_section(BoundedReader& reader, std::span<const std::byte> file, uint64_t& free_from) {
  Section section;
  CHORAL_TRY(section.name, reader.string(kMostNameBytes, "a section's name"));
  CHORAL_TRY(section.text, reader.string(kMostNameBytes, "a section's text"));
  CHORAL_TRY(const uint64_t facts, reader.u64("the number of a section's facts"));
  if (facts > kMostFacts) return too_large("{}: a section has {} facts", reader.file(), facts);
  for (uint64_t i = 0; i < facts; ++i) {
    CHORAL_TRY(const uint64_t fact, reader.u64("a section's fact"));
    section.facts.push_back(static_cast<int64_t>(fact));
  }
  CHORAL_TRY(const uint64_t begin, reader.u64("where a section begins"));
  CHORAL_TRY(const uint64_t size, reader.u64("a section's size"));
  const auto end = checked_add(begin, size);
  if (!end || *end > file.size() || begin < free_from || begin % kSectionAlignment != 0) {
    return corrupt("{}: a section is to be {} bytes from {} on, where it cannot be", reader.file(), size, begin);
  }
  free_from = *end;
  section.bytes = file.subspan(begin, size);
  return section;
}

}  // namespace

std::span<const std::byte> SectionIndex::piece(size_t index) const {
  const auto rest = data.subspan(index * kPieceBytes);
  return rest.first(std::min<size_t>(rest.size(), kPieceBytes));
}

Result<SectionIndex> parse_section_file(std::span<const std::byte> file, std::string_view name, const SectionFileId& id) {
  CHORAL_TRY(const Header header, read_header(file, name, id));
  const auto before_data = file.first(header.data_begin).subspan(kHeaderBytes);
  if (checksum64(before_data) != header.index_checksum) return corrupt("{} has a damaged index", name);
  BoundedReader reader(file.subspan(kHeaderBytes, header.index_bytes), name);
  SectionIndex index{.sections = {}, .data = file.subspan(header.data_begin), .checksums = {}};
  uint64_t free_from = header.data_begin;
  for (uint64_t i = 0; i < header.sections; ++i) {
    CHORAL_TRY(auto section, read_section(reader, file, free_from));
    index.sections.push_back(std::move(section));
  }
  const uint64_t pieces = ceil_div(std::ssize(index.data), kPieceBytes);
  if (reader.remaining() != pieces * sizeof(uint64_t)) {
    return corrupt("{} has {} bytes for the checksums of {} pieces", name, reader.remaining(), pieces);
  }
  for (uint64_t i = 0; i < pieces; ++i) {
    CHORAL_TRY(const uint64_t sum, reader.u64("a checksum"));
    index.checksums.push_back(sum);
  }
  return index;
}

Result<std::shared_ptr<const SectionFile>> SectionFile::open(const fs::path& path, const SectionFileId& id, ThreadPool& pool) {
  CHORAL_TRY(RegularFile opened, RegularFile::open(path));
  if (!opened.is_of_this_user()) {
    return permission_denied("{} is of another user, or others may write to it, so it is not read", path.string());
  }
  auto file = std::make_shared<SectionFile>();
  CHORAL_TRY(file->file_, MappedFile::open(std::move(opened)));
  file->file_->use_huge_pages();
  CHORAL_TRY(file->index_, parse_section_file(file->file_->bytes(), path.string(), id));
  const SectionIndex& index = file->index_;
  FirstFound damaged;
  pool.parallel_for(std::ssize(index.checksums), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      if (checksum64(index.piece(at)) != index.checksums[at]) damaged.found(i);
    }
  });
  CHORAL_RETURN_IF_ERROR(file->check_unchanged());
  if (const auto at = damaged.index()) {
    return corrupt("{} is damaged within 8 MiB from {} MiB of its data on", path.string(), *at * 8);
  }
  return std::shared_ptr<const SectionFile>(std::move(file));
}

namespace {

void put(std::string& out, const void* bytes, size_t count) { out.append(static_cast<const char*>(bytes), count); }
void put_number(std::string& out, uint64_t number) { put(out, &number, sizeof number); }
void put_text(std::string& out, std::string_view text) {
  put_number(out, text.size());
  out += text;
}

// Where everything will stand.
struct Layout {
  std::vector<uint64_t> begins;  // of each section's bytes in the data
  uint64_t data_begin = 0, data_bytes = 0;

  size_t pieces() const { return ceil_div(data_bytes, kPieceBytes); }
};

Layout layout_of(std::span<const Section> sections) {
  Layout layout;
  uint64_t index_bytes = 0;
  for (const Section& section : sections) {
    layout.begins.push_back(layout.data_bytes);
    layout.data_bytes = round_up(layout.data_bytes + section.bytes.size(), kSectionAlignment);
    index_bytes += section.name.size() + section.text.size() + sizeof(uint64_t) * (5 + section.facts.size());
  }
  index_bytes += layout.pieces() * sizeof(uint64_t);
  layout.data_begin = round_up(kHeaderBytes + index_bytes, kDataAlignment);
  return layout;
}

std::string index_of(std::span<const Section> sections, const Layout& layout, std::span<const uint64_t> checksums) {
  std::string index;
  for (size_t i = 0; i < sections.size(); ++i) {
    put_text(index, sections[i].name);
    put_text(index, sections[i].text);
    put_number(index, sections[i].facts.size());
    for (const int64_t fact : sections[i].facts) put_number(index, static_cast<uint64_t>(fact));
    put_number(index, layout.data_begin + layout.begins[i]);
    put_number(index, sections[i].bytes.size());
  }
  for (const uint64_t sum : checksums) put_number(index, sum);
  return index;
}

// Bytes [begin, begin + out.size()) of the data.
void copy_data(std::span<const Section> sections, const Layout& layout, uint64_t begin, std::span<std::byte> out) {
  std::memset(out.data(), 0, out.size());
  const uint64_t end = begin + out.size();
  size_t at = std::upper_bound(layout.begins.begin(), layout.begins.end(), begin) - layout.begins.begin();
  for (at = at == 0 ? 0 : at - 1; at < sections.size() && layout.begins[at] < end; ++at) {
    const uint64_t from = std::max(begin, layout.begins[at]);
    const uint64_t to = std::min(end, layout.begins[at] + sections[at].bytes.size());
    if (from < to) std::memcpy(out.data() + (from - begin), sections[at].bytes.data() + (from - layout.begins[at]), to - from);
  }
}

}  // namespace

uint64_t section_file_bytes(std::span<const Section> sections) {
  const Layout layout = layout_of(sections);
  return layout.data_begin + layout.data_bytes;
}

Status write_section_file(const fs::path& path, const SectionFileId& id, std::span<const Section> sections, ThreadPool& pool) {
  const Layout layout = layout_of(sections);
  constexpr mode_t kOwnersAlone = 0600;
  CHORAL_TRY(const auto file, NewFile::create(path, kOwnersAlone));
  std::vector<uint64_t> checksums(layout.pieces());
  // Whole pieces at once: file systems that keep large folios get whole huge pages so, which mappings then have too.
  std::vector<std::vector<std::byte>> copies(static_cast<size_t>(pool.size()), std::vector<std::byte>(kPieceBytes));
  std::vector<Status> failed(static_cast<size_t>(pool.size()));
  std::atomic<bool> go_on = true;
  pool.parallel_for(std::ssize(checksums), 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end && go_on; ++i) {
      const uint64_t at = static_cast<uint64_t>(i) * kPieceBytes;
      const auto piece =
          std::span(copies[static_cast<size_t>(thread)]).first(std::min<uint64_t>(kPieceBytes, layout.data_bytes - at));
      copy_data(sections, layout, at, piece);
      checksums[static_cast<size_t>(i)] = checksum64(piece);
      Status written = file->write_at(layout.data_begin + at, piece);
      if (written.ok()) continue;
      go_on = false;
      failed[static_cast<size_t>(thread)] = std::move(written);
    }
  });
  for (Status& status : failed) CHORAL_RETURN_IF_ERROR(std::move(status));
  const std::string index = index_of(sections, layout, checksums);
  Header header{};
  std::memcpy(header.magic, kMagic.data(), sizeof header.magic);
  header.byte_order = kByteOrder;
  header.version = id.version;
  header.file_bytes = layout.data_begin + layout.data_bytes;
  header.index_bytes = index.size();
  header.data_begin = layout.data_begin;
  header.sections = sections.size();
  header.digest = id.digest;
  std::vector<std::byte> front(layout.data_begin);
  std::memcpy(front.data() + sizeof header, index.data(), index.size());
  header.index_checksum = checksum64(std::span(front).subspan(sizeof header));
  header.checksum = checksum_of(header);
  std::memcpy(front.data(), &header, sizeof header);
  CHORAL_RETURN_IF_ERROR(file->write_at(0, front));
  return file->finish();
}

}  // namespace choral::io
