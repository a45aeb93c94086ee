// Where the value of a flag comes from when the command line does not say it: its variable (--max-num-seqs: CHORAL_MAX_NUM_SEQS),
// then the file of --config, then the default. A file has a line for each flag, `max-num-seqs = 8` or as YAML has it
// `max-num-seqs: 8`; '#' begins a comment. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
}

namespace choral::apps {

inline constexpr std::string_view kDefaultOrigin = "default";

struct Setting {
  std::string flag;    // "--port"
  std::string value;   // as it was written; the default as the help says it, "none" where there is nothing
  std::string origin;  // "command line", "CHORAL_PORT", "choral.conf:3", kDefaultOrigin
  bool is_secret = false;
};

// Fills in what the command line of `app` left open, when its flags have been parsed. An error names the variable, or the file
// and the line. `all`, when given, hears of every flag.
Status fill_settings(CLI::App& app, std::vector<Setting>* all = nullptr);

// The variable of a flag: "--max-num-seqs" -> "CHORAL_MAX_NUM_SEQS".
std::string variable_of(std::string flag);

}  // namespace choral::apps
