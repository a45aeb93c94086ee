#include "base/json_quoted.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(JsonQuoted, IsValidJsonForAnyBytes) {
  EXPECT_EQ(json_quoted(std::string_view("a\"\\\n\r\t\0\x1f/\x7f\xff\xc3\xa9\b\f\xe2\x82", 17)),
            "\"a\\\"\\\\\\n\\r\\t\\u0000\\u001f/\x7f\xEF\xBF\xBD\xc3\xa9\\b\\f\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace choral
