#include "quant/packed_layers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/gemm/kept_matrix.h"

namespace choral::quant {
namespace {

using kernels::KeptMatrix;

// The first fact of each section. A layer is its head, and then its parts.
enum class Part : int64_t { kLayer, kMatrix, kOrder, kBias };

// What follows it in a matrix's facts, in this order.
struct MatrixFacts {
  int64_t begin = 0;  // of the run
  int64_t kind = 0, n = 0, k = 0, dtype = 0, group_size = 0;
  int64_t bits = 0, scales = 0, codes = 0, blocks = 0, planes = 0;
  int64_t has_fixed_input = 0, input_scale = 0, input_offset = 0;
};
using MatrixNumbers = std::array<int64_t, sizeof(MatrixFacts) / sizeof(int64_t)>;

constexpr size_t kMostNameLength = 64;

std::vector<int64_t> facts_of(int64_t begin, const KeptMatrix& kept) {
  const MatrixFacts facts{
      .begin = begin,
      .kind = static_cast<int64_t>(kept.kind),
      .n = kept.n,
      .k = kept.k,
      .dtype = static_cast<int64_t>(kept.dtype),
      .group_size = kept.group_size,
      .bits = kept.form.bits,
      .scales = static_cast<int64_t>(kept.form.scales),
      .codes = static_cast<int64_t>(kept.form.codes),
      .blocks = kept.form.blocks,
      .planes = static_cast<int64_t>(kept.planes),
      .has_fixed_input = kept.fixed_input.has_value(),
      .input_scale = kept.fixed_input ? int64_t{std::bit_cast<uint32_t>(kept.fixed_input->scale)} : 0,
      .input_offset = kept.fixed_input ? kept.fixed_input->offset : 0,
  };
  std::vector<int64_t> all{static_cast<int64_t>(Part::kMatrix)};
  for (const int64_t number : std::bit_cast<MatrixNumbers>(facts)) all.push_back(number);
  return all;
}

// A number that a type of one byte, or an int, may have.
template <class T>
Result<T> small(int64_t fact) {
  if (fact < 0 || fact > 255) return corrupt("a packed weight with {} where a small number stands", fact);
  return static_cast<T>(fact);
}

Result<KeptMatrix> matrix_of(const io::Section& section) {
  MatrixNumbers numbers;
  if (section.facts.size() != 1 + numbers.size()) return corrupt("a packed weight with {} facts", section.facts.size());
  std::copy(section.facts.begin() + 1, section.facts.end(), numbers.begin());
  const auto facts = std::bit_cast<MatrixFacts>(numbers);
  const bool is_name = section.text.size() <= kMostNameLength &&
                       std::all_of(section.text.begin(), section.text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!is_name) return corrupt("a packed weight with a name of {} bytes", section.text.size());
  KeptMatrix kept{.n = facts.n, .k = facts.k, .group_size = facts.group_size, .name = section.text, .panels = section.bytes};
  CHORAL_TRY(kept.kind, small<KeptMatrix::Kind>(facts.kind));
  CHORAL_TRY(kept.dtype, small<DType>(facts.dtype));
  CHORAL_TRY(kept.form.bits, small<int>(facts.bits));
  CHORAL_TRY(kept.form.scales, small<kernels::QuantScales>(facts.scales));
  CHORAL_TRY(kept.form.codes, small<kernels::QuantCodes>(facts.codes));
  CHORAL_TRY(kept.form.blocks, small<int>(facts.blocks));
  CHORAL_TRY(kept.planes, small<kernels::Planes>(facts.planes));
  if (facts.has_fixed_input != 0) {
    if (facts.input_offset < -128 || facts.input_offset > 127) return corrupt("an input's offset of {}", facts.input_offset);
    kept.fixed_input = kernels::StaticQuant{.scale = std::bit_cast<float>(static_cast<uint32_t>(facts.input_scale)),
                                            .offset = static_cast<int32_t>(facts.input_offset)};
  }
  return kept;
}

Result<Part> part_of(const io::Section& section) {
  if (section.facts.empty() || section.facts[0] < 0 || section.facts[0] > static_cast<int64_t>(Part::kBias)) {
    return corrupt("a part of a packed layer that is none");
  }
  return static_cast<Part>(section.facts[0]);
}

// Numbers that may lie where they like.
template <class T>
Result<std::vector<T>> numbers_of(const io::Section& section) {
  if (section.bytes.size() % sizeof(T) != 0) return corrupt("{} bytes of a packed layer's numbers", section.bytes.size());
  std::vector<T> numbers(section.bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), section.bytes.data(), section.bytes.size());
  return numbers;
}

// The layer whose parts these are.
Result<PackedLayer> layer_of(std::span<const io::Section> parts, const std::shared_ptr<const void>& owner) {
  PackedLayer layer;
  int64_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_TRY(const Part part, part_of(parts[i]));
    if (part == Part::kBias) {
      CHORAL_TRY(layer.bias, numbers_of<float>(parts[i]));
      continue;
    }
    if (part != Part::kMatrix) return corrupt("a packed layer without its matrix");
    CHORAL_TRY(KeptMatrix kept, matrix_of(parts[i]));
    if (parts[i].facts[1] != next) return corrupt("matrices of a packed layer that do not follow each other");
    std::vector<int32_t> order;
    if (i + 1 < parts.size() && parts[i + 1].facts == std::vector{static_cast<int64_t>(Part::kOrder)}) {
      CHORAL_TRY(order, numbers_of<int32_t>(parts[++i]));
      if (order.empty()) return corrupt("an empty order of k");
      kept.k_order = order;
    }
    CHORAL_TRY(auto matrix, kernels::restore_matrix(kept, owner));
    const int64_t rows = matrix->n();
    layer.runs.push_back({next, std::move(matrix)});
    next += rows;
  }
  return layer;
}

}  // namespace

std::string layer_key(const LinearShape& shape, const std::string& scheme) {
  std::string key = fmt::format("{} in {} out", scheme, shape.in);
  for (size_t i = 0; i < shape.out.size(); ++i) {
    key += fmt::format(" {} {}", shape.shard_names[i], shape.out[i]);
    if (!shape.held.empty()) key += fmt::format(" from {} of {}", shape.held[i].first, shape.held[i].of);
  }
  return key;
}

Result<PackedLayer> PackedLayers::read_next(const LinearShape& shape) {
  CHORAL_TRY(const Part head, part_of(found_[next_]));
  if (head != Part::kLayer) return corrupt("a packed layer that begins in the middle");
  size_t end = next_ + 1;
  while (end < found_.size() && found_[end].name.empty()) ++end;  // only heads have names
  CHORAL_TRY(auto layer, layer_of(found_.subspan(next_ + 1, end - next_ - 1), owner_));
  int64_t rows = 0;
  for (const auto& run : layer.runs) {
    rows += run.matrix->n();
    if (run.matrix->k() != shape.in) return corrupt("a packed layer of {} inputs, not {}", run.matrix->k(), shape.in);
  }
  if (rows != shape.out_total()) return corrupt("a packed layer of {} outputs, not {}", rows, shape.out_total());
  if (!layer.bias.empty() && std::ssize(layer.bias) != rows)
    return corrupt("a packed layer with a bias of {}", layer.bias.size());
  next_ = end;
  return layer;
}

std::optional<PackedLayer> PackedLayers::take(const std::string& key, const LinearShape& shape) {
  if (!fault_.ok() || next_ >= found_.size() || found_[next_].name != key) return std::nullopt;
  auto layer = read_next(shape);
  if (!layer.ok()) {
    fault_ = std::move(layer).status().while_(key);
    return std::nullopt;
  }
  for (const auto& run : layer->runs) taken_bytes_ += run.matrix->size_bytes();
  return std::move(*layer);
}

void PackedLayers::keep(const std::string& key, const PackedLayer& layer) {
  if (is_found_) return;
  std::vector<io::Section> sections;
  sections.push_back({{.name = key, .facts = {static_cast<int64_t>(Part::kLayer)}}, {}});
  for (const auto& run : layer.runs) {
    const auto kept = run.matrix->kept();
    if (!kept) return;
    sections.push_back({{.text = std::string(kept->name), .facts = facts_of(run.begin, *kept)}, kept->panels});
    if (!kept->k_order.empty())
      sections.push_back({{.facts = {static_cast<int64_t>(Part::kOrder)}}, std::as_bytes(kept->k_order)});
  }
  if (!layer.bias.empty()) {
    biases_.push_back(std::make_unique<std::vector<float>>(layer.bias));
    sections.push_back({{.facts = {static_cast<int64_t>(Part::kBias)}}, std::as_bytes(std::span(*biases_.back()))});
  }
  for (const auto& section : sections) kept_bytes_ += std::ssize(section.bytes);
  kept_.insert(kept_.end(), std::make_move_iterator(sections.begin()), std::make_move_iterator(sections.end()));
}

}  // namespace choral::quant
