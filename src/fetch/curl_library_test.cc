#include "fetch/curl_library.h"

#include <gmock/gmock.h>

namespace choral::fetch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(CurlLibrary, OneIsOpenedForAll) {
  const auto first = CurlLibrary::open();
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(*first, *CurlLibrary::open());
  CURL* const curl = (*first)->easy_init();
  ASSERT_NE(curl, nullptr);
  (*first)->easy_cleanup(curl);
}

TEST(CurlLibrary, SaysHowToGetOneThatIsNotThere) {
  const auto none = CurlLibrary::load("libcurl-of-nowhere.so.4");
  EXPECT_EQ(none.status().code(), Code::kUnavailable);
  EXPECT_THAT(none.status().message(), AllOf(HasSubstr("libcurl-of-nowhere.so.4"), HasSubstr("apt-get install libcurl4")));
}

TEST(CurlLibrary, RefusesOneThatLacksAFunction) {
  const auto other = CurlLibrary::load("libm.so.6");
  EXPECT_EQ(other.status().code(), Code::kUnsupported);
  EXPECT_THAT(other.status().message(), HasSubstr("curl_easy_init"));
}

}  // namespace
}  // namespace choral::fetch
