// The generations of names for as long as a process runs, where nothing is kept after its end. Numbers begin above a floor, which
// a server takes from the clock, so that two runs of it share no number. Thread-safe; never waits.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "choral/llm.h"

namespace choral::engine {

class CountedGenerations final : public AdapterGenerations {
 public:
  // Of more than `most_names` all are forgotten; the floor rises above their numbers, so that none is given twice.
  explicit CountedGenerations(int floor = 0, size_t most_names = 100'000) : most_names_(most_names), floor_(floor) {}

  Result<int> number_of(const std::string& name, const std::string& digest) override;
  // The name had this content last, says who counted before; nothing where it is known here.
  void go_on_from(const std::string& name, int number, const std::string& digest);

 private:
  struct Last {
    int number = 0;
    std::string digest;
  };
  Last& last_of(const std::string& name);  // under the lock

  const size_t most_names_;
  std::mutex mutex_;
  int floor_;
  std::map<std::string, Last> last_;
};

// The next content's number; an error when there is none left.
Result<int> next_generation(const std::string& name, int64_t last);

}  // namespace choral::engine
