// One after another for each name, side by side for different ones. Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <string>

namespace choral::serve {

class NameTurns {
 public:
  // Until this goes, nobody else has the name's turn.
  class Turn {
   public:
    Turn(NameTurns& turns, std::string name);  // waits for it
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    NameTurns& turns_;
    const std::string name_;
  };
  int waiting() const;  // for a turn

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> taken_;
  int waiting_ = 0;
};

}  // namespace choral::serve
