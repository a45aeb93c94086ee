// Lines of OpenAI's batch files answered without a server, by the routes that serve them over HTTP. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "serve/server.h"

namespace choral::serve {

class WorkQueue;

class LocalBatch {
 public:
  struct Answered {
    int64_t number = 0;  // of the line
    std::string line;    // of the output
    std::string error;   // why it failed; empty: it did not
  };

  // `options`: those that the engine was loaded with; `settings`: what a server would be told, of which only what concerns
  // answers counts. The engine outlives it.
  static Result<std::unique_ptr<LocalBatch>> make(LLM& llm, const EngineOptions& options, const ServerOptions& settings);
  ~LocalBatch();

  // Begins the answer to a line, which has this number.
  void add(int64_t number, std::string_view line);
  // Lines whose answers next() has not given.
  size_t open() const { return open_.size(); }
  // Waits for the answer to the oldest line. There is one.
  Answered next();

 private:
  struct Line;

  LocalBatch();
  void ask(const std::shared_ptr<Line>& line);

  std::unique_ptr<Service> service_;
  std::unique_ptr<WorkQueue> queue_;
  std::deque<std::shared_ptr<Line>> open_;  // in the order of the input
};

}  // namespace choral::serve
