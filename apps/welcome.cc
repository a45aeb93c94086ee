#include "welcome.h"

#include <fmt/core.h>

#include "base/json_quoted.h"
#include "base/printable.h"
#include "requests/answer_lines.h"
#include "shell_word.h"

namespace choral::apps {
namespace {

constexpr std::string_view kUnix = "unix:";

void replace(std::string& text, std::string_view what, std::string_view with) {
  if (const size_t at = text.find(what); at != text.npos) text.replace(at, what.size(), with);
}

// A socket that listens everywhere is asked on this machine. The first by TCP; else the unix socket.
std::string asked_address(const std::vector<std::string>& addresses) {
  std::string asked = addresses.empty() ? "" : addresses.front();
  for (const auto& address : addresses) {
    if (address.starts_with(kUnix)) continue;
    asked = address;
    break;
  }
  replace(asked, "//0.0.0.0:", "//127.0.0.1:");
  replace(asked, "//[::]:", "//[::1]:");
  return asked;
}

bool is_this_machine(std::string_view address) {
  return address.starts_with(kUnix) || address.find("//127.") != address.npos || address.find("//[::1]") != address.npos;
}

// "curl -k -H …", for lines that end in a URL's path.
std::string curl(const WelcomeFacts& facts, const std::string& address) {
  std::string line = "curl";
  if (address.starts_with("https:")) line += " -k";
  if (facts.wants_certificate) line += " --cert \"$CERT\" --key \"$KEY\"";
  if (facts.wants_key) line += " -H \"Authorization: Bearer $OPENAI_API_KEY\"";
  if (!facts.host.empty() && !is_this_machine(address)) line += " -H " + shell_word("Host: " + facts.host);
  if (!address.starts_with(kUnix)) return fmt::format("{} {}", line, shell_word(address));
  return fmt::format("{} --unix-socket {} http://localhost", line, shell_word(address.substr(kUnix.size())));
}

// What has to be there before the lines work.
std::string conditions(const WelcomeFacts& facts, const std::string& address) {
  std::string text;
  if (facts.wants_key) text += ", with one of its keys in OPENAI_API_KEY";
  if (facts.wants_certificate) text += ", with a certificate that --ssl-ca-certs trusts in CERT and its key in KEY";
  if (address.starts_with("https:")) text += " (-k: here the certificate is for another name)";
  return text;
}

std::string python(const WelcomeFacts& facts, const std::string& address) {
  const bool is_tls = address.starts_with("https:");
  return fmt::format(
      "python3 -c {}",
      shell_word(fmt::format("from openai import OpenAI{}; c = OpenAI(base_url=\"{}/v1\"{}{}); "
                             "print(c.completions.create(model={}, prompt=\"Once upon a time\").choices[0].text)",
                             is_tls ? ", DefaultHttpxClient" : "", address, facts.wants_key ? "" : ", api_key=\"none\"",
                             is_tls ? ", http_client=DefaultHttpxClient(verify=False)" : "", json_quoted(facts.model))));
}

}  // namespace

std::string welcome_text(const WelcomeFacts& facts) {
  std::string text;
  for (const auto& address : facts.addresses) text += fmt::format("choral: serving on {}\n", terminal_line(address));
  const std::string address = asked_address(facts.addresses), model = json_quoted(facts.model);
  const std::string body = facts.has_chat_template
                               ? fmt::format(R"({{"model": {}, "messages": [{{"role": "user", "content": "Hello"}}]}})", model)
                               : fmt::format(R"({{"model": {}, "prompt": "Once upon a time"}})", model);
  if (facts.has_console && !address.starts_with(kUnix))
    text += fmt::format("choral: in a browser: {}/\n", terminal_line(address));
  text += fmt::format("choral: try{}\n", conditions(facts, address));
  text += fmt::format("  {}/v1/models\n", terminal_line(curl(facts, address)));
  text += fmt::format("  {}/v1/{} -H 'Content-Type: application/json' \\\n    -d {}\n", terminal_line(curl(facts, address)),
                      facts.has_chat_template ? "chat/completions" : "completions", terminal_line(shell_word(body)));
  const bool python_reaches_it =
      !address.starts_with(kUnix) && !facts.wants_certificate && (facts.host.empty() || is_this_machine(address));
  if (python_reaches_it) text += fmt::format("  {}\n", terminal_line(python(facts, address)));
  return text;
}

}  // namespace choral::apps
