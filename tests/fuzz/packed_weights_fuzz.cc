// A file of packed weights. The first byte says how many pages of data follow the index, which is the rest; header and checksums
// are made for it, so that mutations reach what stands behind them. An even first byte makes the file the rest as it is. What is
// accepted lies inside the file without overlap; a layer that is taken has the shape that was asked for, and multiplies the same
// from one row or two.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "io/section_file.h"
#include "kernels/context.h"
#include "kernels/gemm/packed_matrix.h"
#include "quant/packed_layers.h"

namespace {

using namespace choral;

constexpr size_t kPage = 4096, kHeaderBytes = 128, kDataBegin = size_t{2} << 20;
constexpr io::SectionFileId kId{.version = 1, .digest = {}};
constexpr int64_t kMostNumbers = 1 << 16;  // of a weight that is multiplied here

struct alignas(kPage) Page {
  std::byte bytes[kPage];
};

void put(std::byte* at, uint64_t number) { std::memcpy(at, &number, sizeof number); }

// As io/section_file.h has it.
size_t make_file(const uint8_t* index, size_t size, size_t pages, std::vector<Page>& file) {
  const size_t data_bytes = pages * kPage, bytes = kDataBegin + data_bytes;
  size = std::min(size, kDataBegin - kHeaderBytes - 16);
  file.assign(bytes / kPage, Page{});
  std::byte* front = file.front().bytes;
  std::byte* at = front + kHeaderBytes;
  // The first byte of the index is how many sections there are.
  const uint64_t sections = size == 0 ? 0 : index[0];
  for (size_t i = 0; i < data_bytes; ++i) front[kDataBegin + i] = static_cast<std::byte>(i * 31 & 0x3F);
  if (size > 1) std::memcpy(at, index + 1, size - 1);
  const size_t index_bytes = (size > 1 ? size - 1 : 0) + (pages > 0 ? 8 : 0);
  if (pages > 0) put(at + index_bytes - 8, checksum64({front + kDataBegin, data_bytes}));
  std::memcpy(front, "CHORALSF\x04\x03\x02\x01\x01\x00\x00\x00", 16);
  put(front + 16, bytes);
  put(front + 24, index_bytes);
  put(front + 32, kDataBegin);
  put(front + 40, sections);
  put(front + 80, checksum64({at, kDataBegin - kHeaderBytes}));
  put(front + 120, checksum64({front, 120}));
  return bytes;
}

void use(const quant::PackedLayer& layer, const quant::LinearShape& shape) {
  static ThreadPool pool(1);
  static Arena scratch;
  int64_t rows = 0;
  for (const auto& run : layer.runs) {
    CHORAL_CHECK(run.begin == rows && run.matrix->k() == shape.in, "a layer of another shape");
    rows += run.matrix->n();
    const int64_t n = run.matrix->n(), k = shape.in;
    const Arena::Mark mark(scratch);
    const kernels::Context ctx{pool, cpu_level(), scratch};
    std::vector<float> x(static_cast<size_t>(2 * k), 0.5F), one(static_cast<size_t>(n)), two(static_cast<size_t>(2 * n));
    run.matrix->multiply(ctx, {x.data(), 2, k}, {}, {two.data(), 2, n});
    run.matrix->multiply(ctx, {x.data(), 1, k}, {}, {one.data(), 1, n});
    CHORAL_CHECK(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0, "a row that depends on its neighbour");
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t r = 0; r < n; ++r) CHORAL_CHECK(run.matrix->read_row(r, row).ok(), "a row that cannot be read");
  }
  CHORAL_CHECK(rows == shape.out_total(), "a layer of other rows");
}

// The layers one after the other, in the shape that the first matrix of each says: its rows and k are the fourth and fifth fact.
void take_layers(std::span<const io::Section> sections) {
  quant::PackedLayers layers(sections, nullptr);
  for (size_t i = 0; i + 1 < sections.size(); ++i) {
    if (sections[i].name.empty()) continue;
    int64_t rows = 0, k = 0;
    for (size_t m = i + 1; m < sections.size() && sections[m].name.empty(); ++m) {
      if (sections[m].facts.size() < 5 || sections[m].facts[0] != 1) continue;
      const int64_t n = sections[m].facts[3];
      k = sections[m].facts[4];
      if (n <= 0 || k <= 0 || n > kMostNumbers || k > kMostNumbers || (rows + n) * k > kMostNumbers) return;
      rows += n;
    }
    if (k == 0) return;
    const quant::LinearShape shape{.in = k, .out = {rows}, .shard_names = {"l"}};
    if (const auto layer = layers.take(sections[i].name, shape)) use(*layer, shape);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::vector<Page> pages;
  if (size == 0) return 0;
  std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  if (data[0] % 2 == 1) {
    const size_t bytes = make_file(data + 1, size - 1, data[0] / 2, pages);
    file = {pages.front().bytes, bytes};
  }
  const auto index = io::parse_section_file(file, "fuzzed", kId);
  if (!index.ok()) return 0;
  const std::byte* free_from = file.data();
  for (const auto& section : index->sections) {
    CHORAL_CHECK(section.bytes.data() >= free_from, "sections that overlap");
    free_from = section.bytes.data() + section.bytes.size();
    CHORAL_CHECK(free_from <= file.data() + file.size(), "a section outside the file");
  }
  for (size_t i = 0; i < index->checksums.size(); ++i) CHORAL_CHECK(!index->piece(i).empty(), "a checksum of nothing");
  take_layers(index->sections);
  return 0;
}
