// Compiles grammars on threads of its own, for a caller that waits a bounded time: a schema can be small and its automaton huge.
// A compilation cannot be interrupted, so two things keep it from holding up others. What is large by its text has a lane of its
// own; and a thread whose compilation takes longer than its lane is patient is set aside, at the least priority, and another
// takes its place. So many may be aside; then what comes to a lane without threads is refused at once. The result of one that
// overruns serves the next who asks. Equal wishes that wait at one time are compiled once. Thread-safety: run() may be called
// from many threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "text/grammar/xgrammar_grammar.h"

namespace choral::text {

struct CompileLimits {
  int threads = 2;     // for small ones; one more is for large ones
  int most_aside = 4;  // and so many threads may be in compilations that take long
  size_t max_waiting = 64;
  double limit_s = 10;    // that a caller waits
  double patience_s = 1;  // until its thread is set aside
};

class CompileQueue {
 public:
  using Job = std::function<Result<CompiledGrammar>()>;
  enum class Lane : uint8_t { kSmall, kLarge };

  explicit CompileQueue(const CompileLimits& limits);
  // Waits for what ends within the limit; a compilation that does not is left to end by itself, on what its job holds.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The job's result. deadline_exceeded: not within the limit; resource_exhausted: too many wait, or all threads are held.
  Result<CompiledGrammar> run(const std::string& key, Lane lane, Job job);

 private:
  struct Task;
  struct Thread;
  struct Shared;  // with the threads, which may outlive the queue
  static void work(const std::shared_ptr<Shared>& shared, Thread& self);
  Status admit(const std::shared_ptr<Task>& task);
  Status add_thread(Lane lane);
  void set_aside(Thread& thread);

  std::shared_ptr<Shared> shared_;
};

}  // namespace choral::text
