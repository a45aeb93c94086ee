// Compiles grammars on threads of its own, for a caller that waits a bounded time: a schema can be small and its automaton huge.
// A compilation cannot be interrupted. One that overruns keeps its thread until it ends (its result then serves the next who
// asks); when all threads are held so, new ones are refused at once. Equal wishes that wait at one time are compiled once.
// Thread-safety: run() may be called from many threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "text/grammar/xgrammar_grammar.h"

namespace choral::text {

class CompileQueue {
 public:
  using Job = std::function<Result<CompiledGrammar>()>;

  CompileQueue(int threads, size_t max_waiting, double limit_s);
  // Waits for what ends within the limit; a compilation that does not is left to end by itself, on what its job holds.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The job's result. deadline_exceeded: not within the limit; resource_exhausted: too many wait, or all threads are held.
  Result<CompiledGrammar> run(const std::string& key, Job job);

 private:
  struct Task;
  struct Shared;  // with the threads, which may outlive the queue
  static void work(const std::shared_ptr<Shared>& shared);
  Status admit(const std::shared_ptr<Task>& task);

  std::shared_ptr<Shared> shared_;
};

}  // namespace choral::text
