#include "answer_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "serve/answers/call_marks.h"
#include "serve/answers/thought_marks.h"

namespace choral::apps {

void add_answer_flags(CLI::App& app, serve::ServerOptions& options) {
  const auto option = [&app](const char* names, auto& value, const std::string& what) {
    app.add_option(names, value, what)->type_name("NAME")->group("Server");
  };
  option("-a,--served-model-name,--alias", options.base_names, "what requests call the base (the model's name)");
  option("--tool-call-parser", options.tool_call_parser,
         fmt::format("how the model writes tool calls: {} (as its chat template says)", serve::tool_format_names()));
  option("--reasoning-parser", options.reasoning_parser,
         fmt::format("how the model marks what it thinks: {}; none = thoughts stay in the text (as its chat template says)",
                     serve::thought_marks_names()));
  option("--score-by", options.score_by,
         "how reranking compares texts: vectors, by their angle; yes-no, as chat models answer that are rerankers; head, by the "
         "model's own of one class (head where there is one, else vectors)");
  app.add_flag("--strict-fields", options.strict_fields, "a field of a body that is not known is an error, not a warning")
      ->group("Server");
}

}  // namespace choral::apps
