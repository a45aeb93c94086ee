#include "layers/state_vectors.h"

#include <cmath>

namespace choral::layers {

StateVectors::StateVectors(Builder& builder, const Spec& spec)
    : prefix_(spec.prefix),
      channels_(spec.channels),
      taps_(spec.taps),
      conv_(spec.channels * spec.taps),
      conv_bias_(spec.conv_bias ? spec.channels : 0),
      decay_(spec.heads),
      dt_bias_(spec.heads),
      skip_(spec.skip ? spec.heads : 0) {
  builder.modules.push_back(this);
}

Status StateVectors::load_weights(quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(load_decay(source));
  CHORAL_RETURN_IF_ERROR(source.read_vector(prefix_ + ".dt_bias", dt_bias_));
  if (!skip_.empty()) CHORAL_RETURN_IF_ERROR(source.read_vector(prefix_ + ".D", skip_));
  if (!conv_bias_.empty()) CHORAL_RETURN_IF_ERROR(source.read_vector(prefix_ + ".conv1d.bias", conv_bias_));
  return load_conv(source);
}

Status StateVectors::load_decay(quant::WeightSource& source) {
  const std::string log = prefix_ + ".A_log", as_used = prefix_ + ".A";
  if (source.contains(log) || !source.contains(as_used)) {
    CHORAL_RETURN_IF_ERROR(source.read_vector(log, decay_));
    for (float& value : decay_) value = std::exp(value);
    return {};
  }
  CHORAL_RETURN_IF_ERROR(source.read_vector(as_used, decay_));
  for (float& value : decay_) value = -value;
  return {};
}

Status StateVectors::load_conv(quant::WeightSource& source) {
  const std::string name = prefix_ + ".conv1d.weight";
  CHORAL_TRY(auto tensor, source.take(name, Shape{channels_, 1, taps_}));
  if (!facts(tensor.view.dtype).is_floating) {
    return unsupported("tensor {} is stored as {}, a float type is wanted", name, dtype_name(tensor.view.dtype));
  }
  const std::vector<int32_t> order = std::move(tensor.row_order);  // of channels
  tensor.row_order = {};
  std::vector<float> by_channel(conv_.size());
  quant::read_vector(tensor, source.request(), by_channel);
  for (int64_t channel = 0; channel < channels_; ++channel) {
    const int64_t row = order.empty() ? channel : order[channel];
    for (int64_t tap = 0; tap < taps_; ++tap) conv_[tap * channels_ + channel] = by_channel[row * taps_ + tap];
  }
  source.release(name);
  return {};
}

}  // namespace choral::layers
