#include "layers/state_vectors.h"

#include <algorithm>
#include <cmath>

namespace choral::layers {

StateVectors::StateVectors(Builder& builder, const Spec& spec)
    : spec_(spec),
      channels_(spec.own_channels.empty() ? std::vector{Share{0, spec.channels}} : spec.own_channels),
      heads_{spec.own_heads.value_or(Share{0, spec.heads})},
      conv_(count_of(channels_) * spec.taps),
      conv_bias_(spec.conv_bias ? count_of(channels_) : 0),
      decay_(count_of(heads_)),
      dt_bias_(count_of(heads_)),
      skip_(spec.skip ? count_of(heads_) : 0) {
  builder.modules.push_back(this);
}

Status StateVectors::load_weights(quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(load_decay(source));
  CHORAL_RETURN_IF_ERROR(read_own(source, "dt_bias", spec_.heads, heads_, dt_bias_));
  if (!skip_.empty()) CHORAL_RETURN_IF_ERROR(read_own(source, "D", spec_.heads, heads_, skip_));
  if (!conv_bias_.empty()) CHORAL_RETURN_IF_ERROR(read_own(source, "conv1d.bias", spec_.channels, channels_, conv_bias_));
  return load_conv(source);
}

Status StateVectors::read_own(quant::WeightSource& source, std::string_view name, int64_t all, std::span<const Share> own,
                              std::span<float> out) const {
  std::vector<float> whole(static_cast<size_t>(all));
  CHORAL_RETURN_IF_ERROR(source.read_vector(fmt::format("{}.{}", spec_.prefix, name), whole));
  auto to = out.begin();
  for (const Share& share : own) to = std::copy_n(whole.begin() + share.begin, share.count, to);
  return {};
}

Status StateVectors::load_decay(quant::WeightSource& source) {
  const bool as_used = source.contains(spec_.prefix + ".A") && !source.contains(spec_.prefix + ".A_log");
  CHORAL_RETURN_IF_ERROR(read_own(source, as_used ? "A" : "A_log", spec_.heads, heads_, decay_));
  for (float& value : decay_) value = as_used ? -value : std::exp(value);
  return {};
}

Status StateVectors::load_conv(quant::WeightSource& source) {
  const std::string name = spec_.prefix + ".conv1d.weight";
  CHORAL_TRY(auto tensor, source.take(name, Shape{spec_.channels, 1, spec_.taps}));
  if (!facts(tensor.view.dtype).is_floating) {
    return unsupported("tensor {} is stored as {}, a float type is wanted", name, dtype_name(tensor.view.dtype));
  }
  const std::vector<int32_t> order = std::move(tensor.row_order);  // of channels
  tensor.row_order = {};
  std::vector<float> by_channel(spec_.channels * spec_.taps);
  quant::read_vector(tensor, source.request(), by_channel);
  const int64_t own = count_of(channels_);
  int64_t at = 0;
  for (const Share& share : channels_) {
    for (int64_t channel = share.begin; channel < share.begin + share.count; ++channel, ++at) {
      const int64_t row = order.empty() ? channel : order[channel];
      for (int64_t tap = 0; tap < spec_.taps; ++tap) conv_[tap * own + at] = by_channel[row * spec_.taps + tap];
    }
  }
  source.release(name);
  return {};
}

}  // namespace choral::layers
