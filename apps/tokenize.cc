// `choral tokenize`: text to token ids and back, without loading any weights.
#include <utf8proc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/json_quoted.h"
#include "base/log.h"
#include "command.h"
#include "engine/model_loader.h"
#include "engine_flags.h"
#include "output_file.h"
#include "requests/answer_lines.h"

namespace choral::apps {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

struct TokenizeFlags {
  EngineFlags engine;
  std::optional<std::string> text;
  std::optional<std::string> ids;
  bool json = false;
  bool no_special = false;
};

Result<std::vector<int32_t>> parse_ids(std::string_view text, int32_t vocabulary) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ',' || text[at] == ' ' || text[at] == '\n' || text[at] == '[' || text[at] == ']') {
      ++at;
      continue;
    }
    int32_t id = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    const auto length = static_cast<size_t>(end - text.data()) - at;
    if (error != std::errc() || length == 0) return invalid_argument("--ids: '{}' is not a token id", text.substr(at, 16));
    if (id < 0 || id >= vocabulary)
      return invalid_argument("--ids: {} is no token; the tokenizer has ids 0 to {}", id, vocabulary - 1);
    ids.push_back(id);
    at += length;
  }
  return ids;
}

// What a token stands for in a text; a byte that is only part of a character as <0xC3>.
std::string shown_bytes(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    utf8proc_int32_t character = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                                         static_cast<utf8proc_ssize_t>(bytes.size()), &character);
    if (length > 0) {
      out += bytes.substr(0, static_cast<size_t>(length));
    } else {
      out += fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes.front()));
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<utf8proc_ssize_t>(length, 1)));
  }
  return out;
}

Status print_tokens(const text::Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids, bool json) {
  std::string out = json ? fmt::format("{{\"text\":{},\"token_ids\":[", json_quoted(text)) : "";
  std::string pieces;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = json_quoted(tokenizer.id_to_token(ids[i]).value_or(""));
    if (json) {
      out += fmt::format("{}{}", i > 0 ? "," : "", ids[i]);
      pieces += (i > 0 ? "," : "") + piece;
    } else {
      out += fmt::format("{:>8}  {}\n", ids[i], json_quoted(shown_bytes(tokenizer.token_bytes(ids[i]))));
    }
  }
  if (json) return print_out(fmt::format("{}],\"tokens\":[{}]}}\n", out, pieces));
  CHORAL_RETURN_IF_ERROR(print_out(out));
  say("choral: {} token{}\n", ids.size(), ids.size() == 1 ? "" : "s");
  return {};
}

Result<std::string> read_stdin() {
  std::string text;
  for (int c = 0; (c = std::getc(stdin)) != EOF;) {
    if (text.size() >= kMaxTextBytes) return too_large("the text on standard input has more than {}", size_text(kMaxTextBytes));
    text.push_back(static_cast<char>(c));
  }
  return text;
}

Status run(const TokenizeFlags& flags) {
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  CHORAL_TRY(const auto files, engine::open_model_files(options));
  const text::Tokenizer& tokenizer = *files.tokenizer;
  if (flags.ids) {
    if (flags.text) return invalid_argument("give either --text or --ids");
    CHORAL_TRY(const auto ids, parse_ids(*flags.ids, static_cast<int32_t>(tokenizer.vocab_size())));
    const std::string text = tokenizer.decode(ids, {.skip_special_tokens = flags.no_special});
    return flags.json ? print_tokens(tokenizer, text, ids, true) : print_out(text + "\n");
  }
  std::string text;
  if (flags.text) {
    text = *flags.text;
  } else {
    CHORAL_TRY(text, read_stdin());
  }
  CHORAL_TRY(const auto ids, tokenizer.encode(text, {.add_special_tokens = !flags.no_special}));
  return print_tokens(tokenizer, text, ids, flags.json);
}

}  // namespace

void add_tokenize(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("tokenize", "text to token ids, and with --ids back");
  const auto flags = std::make_shared<TokenizeFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("--text", flags->text, "the text (default: standard input)")->type_name("TEXT");
  sub->add_option("--ids", flags->ids, "token ids to turn into text, e.g. 1,2,3")->type_name("LIST");
  sub->add_option("--tokenizer", flags->engine.options.tokenizer, "another folder for the tokenizer")->type_name("PATH");
  sub->add_flag("--no-special", flags->no_special, "add no special tokens; with --ids: leave them out of the text");
  sub->add_flag("--json", flags->json, "one JSON object");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
