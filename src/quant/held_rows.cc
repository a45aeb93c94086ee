#include "quant/held_rows.h"

#include <algorithm>
#include <cstring>

#include "quant/shards.h"

namespace choral::quant {
namespace {

const Shape& alternative(const Shard& shard, size_t index) { return index == 0 ? shard.shape : shard.other_shapes[index - 1]; }

// Which of the shapes the tensor came in.
size_t met_alternative(const Shard& stored, const Shape& shape) {
  size_t index = 0;
  while (!(alternative(stored, index) == shape)) ++index;
  return index;
}

// What a scheme registers for other numbers of rows of the same layer.
class OtherShapes {
 public:
  OtherShapes(LinearMethod& method, const LinearShape& shape) : method_(method), shape_(shape) {
    register_for([](const HeldRows& held) { return held.of; }, stored_);
    register_for([](const HeldRows& held) { return held.first; }, before_);
    register_for([](const HeldRows& held) { return held.first + 1; }, beyond_);
    register_for([](const HeldRows&) { return int64_t{1}; }, one_);
  }

  const ParameterSet& stored() const { return stored_; }

  // The part of a shard that is held, where the tensor has the `index`-th of its shapes; none: all of it.
  Result<std::optional<Shard::Cut>> find_cut(size_t parameter, size_t shard, size_t index, const Shape& held) const {
    const auto in = [&](const ParameterSet& set) -> const Shape& {
      return alternative(set.all()[parameter].shards[shard], index);
    };
    std::optional<Shard::Cut> cut;
    for (int d = 0; d < held.rank(); ++d) {
      // As many for all rows as for one, or for these from the first on: held whole.
      if (in(stored_)[d] == held[d] && (held[d] == in(one_)[d] || in(before_)[d] == 0)) continue;
      if (cut || in(stored_)[d] == held[d] || in(beyond_)[d] != in(before_)[d] + in(one_)[d]) {
        return unsupported("{} {} cannot be divided where this rank's rows begin; choose another --tensor-parallel-size",
                           stored_.all()[parameter].shards[shard].name, in(stored_).to_string());
      }
      cut = {d, in(before_)[d], held};
    }
    return cut;
  }

 private:
  template <class RowsOf>
  void register_for(RowsOf rows_of, ParameterSet& parameters) {
    LinearShape other = shape_;
    for (size_t i = 0; i < other.out.size(); ++i) other.out[i] = rows_of(shape_.held[i]);
    other.held.clear();
    method_.create_weights(other, parameters);
  }

  LinearMethod& method_;
  const LinearShape& shape_;
  ParameterSet stored_, before_, beyond_, one_;
};

int64_t product_of(std::span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// A row of W as bytes: all that follows the first dimension.
int64_t bytes_of_first(const TensorView& view) {
  return view.shape.rank() == 1 ? row_bytes(view.dtype, 1) : view.size_bytes() / view.shape[0];
}

// Rows that the file has in another order or as columns.
Status copy_rows(const io::SourceTensor& tensor, const Shard::Cut& cut, Tensor& memory) {
  const TensorView& view = tensor.view;
  CHORAL_TRY(memory, Tensor::allocate(view.dtype, cut.shape));
  const int64_t bytes = bytes_of_first(view);
  for (int64_t r = 0; r < cut.shape[0]; ++r) {
    std::byte* to = memory.data() + r * bytes;
    if (!tensor.transposed) {
      std::memcpy(to, view.data + tensor.row_order[static_cast<size_t>(cut.begin + r)] * bytes, static_cast<size_t>(bytes));
      continue;
    }
    const int64_t element = row_bytes(view.dtype, 1), cols = view.cols();
    for (int64_t c = 0; c < cols; ++c) {
      std::memcpy(to + c * element, view.data + (c * view.shape[0] + cut.begin + r) * element, static_cast<size_t>(element));
    }
  }
  return {};
}

// Of a dimension behind the first.
Status copy_columns(const TensorView& view, const Shard::Cut& cut, Tensor& memory) {
  CHORAL_TRY(memory, Tensor::allocate(view.dtype, cut.shape));
  const int64_t inner = product_of(view.shape.dims().subspan(static_cast<size_t>(cut.dim) + 1)) * row_bytes(view.dtype, 1);
  const int64_t outer = product_of(view.shape.dims().first(static_cast<size_t>(cut.dim)));
  const int64_t held = cut.shape[cut.dim];
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(memory.data() + o * held * inner, view.data + (o * view.shape[cut.dim] + cut.begin) * inner,
                static_cast<size_t>(held * inner));
  }
  return {};
}

Status cut_out(const platform::Context& ctx, Shard& shard) {
  io::SourceTensor& tensor = shard.tensor;
  const Shard::Cut cut = *shard.cut;
  const bool of_blocks = facts(tensor.view.dtype).is_block;
  if (of_blocks && (cut.dim > 0 || tensor.view.shape.rank() == 1)) {
    return unsupported("{} is stored as {}, which cannot be divided so; run without --tensor-parallel-size", shard.name,
                       dtype_name(tensor.view.dtype));
  }
  if (!tensor.parts.empty()) {
    CHORAL_TRY(tensor.view, as_rows(ctx, tensor, shard.memory));
    tensor.parts.clear();
  }
  if (cut.dim > 0) {
    CHORAL_RETURN_IF_ERROR(copy_columns(tensor.view, cut, shard.memory));
    tensor.view = shard.memory.view();
  } else if (tensor.transposed || !tensor.row_order.empty()) {
    CHORAL_RETURN_IF_ERROR(copy_rows(tensor, cut, shard.memory));
    tensor.view = shard.memory.view();
    tensor.transposed = false;
    tensor.row_order.clear();
  } else {
    tensor.view.data += cut.begin * bytes_of_first(tensor.view);
    tensor.view.shape = cut.shape;
  }
  shard.cut.reset();
  return {};
}

}  // namespace

void hold_rows(const LinearShape& whole, int64_t begin, int64_t count, LinearShape& held) {
  int64_t first = 0;  // of the shard's rows
  for (size_t i = 0; i < whole.out.size(); ++i) {
    const int64_t from = std::max(begin, first), to = std::min(begin + count, first + whole.out[i]);
    if (from < to) {
      held.out.push_back(to - from);
      held.shard_names.push_back(whole.shard_names[i]);
      held.held.push_back({from - first, whole.out[i]});
    }
    first += whole.out[i];
  }
}

bool may_hold(LinearMethod& method, const LinearShape& shape) {
  ParameterSet held;
  method.create_weights(shape, held);
  const OtherShapes others(method, shape);
  for (size_t p = 0; p < held.all().size(); ++p) {
    for (size_t s = 0; s < held.all()[p].shards.size(); ++s) {
      const Shard& shard = held.all()[p].shards[s];
      for (size_t i = 0; i <= shard.other_shapes.size(); ++i) {
        if (!others.find_cut(p, s, i, alternative(shard, i)).ok()) return false;
      }
    }
  }
  return true;
}

Status load_held_rows(LinearMethod& method, const LinearShape& shape, WeightSource& source, ParameterSet& parameters) {
  const OtherShapes others(method, shape);
  for (size_t p = 0; p < parameters.all().size(); ++p) {
    const Parameter& parameter = others.stored().all()[p];
    for (size_t s = 0; s < parameter.shards.size(); ++s) {
      Shard& shard = parameters.all()[p].shards[s];
      CHORAL_TRY(shard.tensor, load_shard(source, parameter, parameter.shards[s]));
      if (!shard.loaded()) continue;
      const size_t met = met_alternative(parameter.shards[s], shard.tensor.view.shape);
      CHORAL_TRY(shard.cut, others.find_cut(p, s, met, alternative(shard, met)));
    }
  }
  return {};
}

Status cut_held_rows(const platform::Context& ctx, ParameterSet& parameters) {
  for (auto& parameter : parameters.all()) {
    for (auto& shard : parameter.shards) {
      if (shard.cut) CHORAL_RETURN_IF_ERROR(cut_out(ctx, shard));
    }
  }
  return {};
}

}  // namespace choral::quant
