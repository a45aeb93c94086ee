#include "html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>

#include "support/temp_dir.h"

namespace choral::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kHostile = "</td></style><script>alert(\"1\")</script>'&";
constexpr std::string_view kEscaped = "&lt;/td&gt;&lt;/style&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#39;&amp;";

TEST(HtmlPage, EscapesWhatEnds) {
  EXPECT_EQ(html_escaped(kHostile), kEscaped);
  EXPECT_EQ(html_escaped("a\nb\t漢"), "a\nb\t漢");
  const std::string broken("\x1b[2J\0\xff\xe6\xbc\xc2\x85\xef\xbf\xbf", 13);
  EXPECT_EQ(html_escaped(broken), "\uFFFD[2J\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

// Wherever a text goes in, it comes out as a text.
TEST(HtmlPage, EscapesEveryText) {
  const std::string text(kHostile);
  HtmlPage page(text, text);
  page.add_heading(text);
  page.add_text(text);
  page.add_folded(text, {text});
  const HtmlTable table{text, {text, text}, {{{.text = text}, {.text = text, .look = HtmlCell::Look::kBar, .told = text}}}};
  page.add_table(table);
  page.add_tables_beside({table});
  page.add_chart({text, {{.value = 1, .beside = 2, .told = text}}});
  page.add_answers({{text, text, 3, text}});
  const std::string out = page.text();
  EXPECT_THAT(out, Not(HasSubstr("<script")));
  EXPECT_THAT(out, HasSubstr(kEscaped));
  EXPECT_THAT(out, HasSubstr(fmt::format("&lt;/t<mark>{}</mark>", kEscaped.substr(std::string_view("&lt;/t").size()))));
}

TEST(HtmlPage, DrawsOnlyFiniteSharesFromNoneToAll) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  HtmlPage page("t", "");
  HtmlTable table{"", {"a", "b"}, {}};
  for (const double share : {-1.0, 0.25, 7.0, kInf, kNan})
    table.rows.push_back({{.text = "x"}, {.text = "y", .look = HtmlCell::Look::kBar, .share = share}});
  page.add_table(table);
  page.add_chart({"c", {{.value = kInf, .beside = kNan, .told = ""}, {.value = 2, .beside = {}, .told = ""}}});
  page.add_chart({"nothing", {}});
  const std::string out = page.text();
  for (const char* share : {"--share: 0.0%", "--share: 25.0%", "--share: 100.0%"}) EXPECT_THAT(out, HasSubstr(share));
  for (const char* bad : {"inf", "nan", "700"}) EXPECT_THAT(out.substr(out.find("<body>")), Not(HasSubstr(bad)));
  EXPECT_THAT(out, HasSubstr("height=\"100.00\""));
}

TEST(HtmlPage, IsWrittenWhole) {
  const testing::TempDir folder;
  const std::string path = (folder.path() / "page.html").string();
  auto file = open_beside_report("--html", path, true);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_FALSE(std::filesystem::exists(path));
  const HtmlPage page("t", "lead");
  ASSERT_TRUE(write_html_file(file->get(), page).ok());
  std::ostringstream got;
  got << std::ifstream(path).rdbuf();
  EXPECT_EQ(got.str(), page.text() + "\n");

  EXPECT_TRUE(write_html_file(nullptr, page).ok());
  EXPECT_THAT(open_beside_report("--html", "-", true).status().message(), HasSubstr("--html: name a file"));
  EXPECT_FALSE(open_beside_report("--html", (folder.path() / "no/page.html").string(), true).ok());
}

}  // namespace
}  // namespace choral::apps
