// Layers as the package compressed-tensors writes them (tests/data/quant): the same weights as it unpacks, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "platform/cpu_context_test.h"
#include "quant/formats/formats.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

constexpr int64_t kRows = 20, kCols = 96;

std::shared_ptr<const io::SafetensorsFile> open_layer(const std::string& name) {
  return *io::SafetensorsFile::open(CHORAL_TEST_DATA "/quant/" + name + ".safetensors");
}

TEST(PackedLayers, AreUnpackedAsTheirWriterDoes) {
  platform::testing::CpuContext cpu;
  for (const char* name :
       {"packed-int2-group", "packed-int3-group", "packed-int4-group", "packed-int5-group", "packed-int8-group",
        "packed-int4-group-asymmetric", "packed-int3-channel-asymmetric", "packed-int8-channel", "packed-int4-tensor",
        "bytes-int8-channel", "bytes-int4-group", "bytes-int8-channel-asymmetric", "mxfp4-group", "mxfp8-group"}) {
    SCOPED_TRACE(name);
    const auto file = open_layer(name);
    const auto config = *io::ConfigMap::parse_json(file->metadata().at("quantization_config"), name);
    const auto quant_config = read_compressed_tensors(config);
    ASSERT_TRUE(quant_config.ok()) << quant_config.status().message();
    testing::StoredWeights source;
    for (const auto& entry : file->entries()) source.add(entry.name, *file->find(entry.name));
    const LinearShape shape{.in = kCols, .out = {kRows}, .shard_names = {"l"}};
    const auto method = *(*quant_config)->get_quant_method(LayerKind::kLinear, shape);
    ParameterSet parameters;
    method->create_weights(shape, parameters);
    const auto loaded = parameters.weight_loader(source);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const auto packed = method->process_weights_after_loading(*cpu, {}, shape, parameters);
    ASSERT_TRUE(packed.ok()) << packed.message();
    const TensorView expected = *file->find("expected");
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> got(kCols), want(kCols);
      std::memcpy(want.data(), expected.row(row), kCols * sizeof(float));
      ASSERT_TRUE(method->read_row(row, got).ok());
      ASSERT_EQ(got, want) << row;
    }
  }
}

}  // namespace
}  // namespace choral::quant
