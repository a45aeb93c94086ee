// For tests only: the words that the tests of reading and of checking an adapter share. Header-only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::lora {

using choral::testing::TempDir;
using testing::accepted;
using testing::AdapterBuilder;
using ::testing::AllOf;
using testing::config_json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kHidden;
using testing::kInner;
using testing::kKeys;
using testing::kVocabulary;
using ::testing::Not;
using testing::refusal;

inline constexpr char kQuery[] = "model.layers.0.self_attn.q_proj";

}  // namespace choral::lora
