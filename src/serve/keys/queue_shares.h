// How much of the engine's one queue each key may fill where there are several: no more than it leaves free. So one key alone
// gets half of the queue, two get a third each, and whoever comes next finds a place: nobody has to say a number for that. What a
// key's answers may have of the batch is not counted. Thread-safe; places go before this.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

class QueueShares {
 public:
  // The engine's queue as it is now, in answers.
  struct Queue {
    int64_t batch = 0;  // places for those that run
    int64_t waiting = 0;
    int64_t most_waiting = 0;
  };

  // Answers of a key in flight, until it goes.
  class Place {
   public:
    Place() = default;  // of nobody
    Place(Place&& other) noexcept;
    Place& operator=(Place&& other) noexcept;
    ~Place() { leave(); }
    // So many of them as a place of their own. A place of nobody gives such.
    Place split(int64_t answers);

   private:
    friend class QueueShares;
    Place(QueueShares* owner, std::string key, int64_t answers) : owner_(owner), key_(std::move(key)), answers_(answers) {}
    void leave();
    QueueShares* owner_ = nullptr;
    std::string key_;
    int64_t answers_ = 0;
  };

  // resource_exhausted: not now. too_large: so many answers at once never fit.
  Result<Place> take(std::string_view key, int64_t answers, const Queue& queue);

 private:
  void give_back(const std::string& key, int64_t answers);

  std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> in_flight_;  // answers, of keys that have any
};

}  // namespace choral::serve
