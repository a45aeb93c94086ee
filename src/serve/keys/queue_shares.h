// How much of the engine's one queue each client, a key or an address, may fill where they are told apart: no more than it leaves
// free. So one client alone gets half of the queue, two get a third each, and whoever comes next finds a place: nobody has to say
// a number for that. What a client's answers may have of the batch is not counted. Thread-safe; places go before this.
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

  // Answers of a client in flight, until it goes.
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
    Place(QueueShares* owner, std::string client, int64_t answers)
        : owner_(owner), client_(std::move(client)), answers_(answers) {}
    void leave();
    QueueShares* owner_ = nullptr;
    std::string client_;
    int64_t answers_ = 0;
  };

  // `client`: as messages name it, "key 'alice'". resource_exhausted: not now. too_large: so many answers at once never fit.
  Result<Place> take(std::string_view client, int64_t answers, const Queue& queue);

 private:
  void give_back(const std::string& client, int64_t answers);

  std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> in_flight_;  // answers, of clients that have any
};

}  // namespace choral::serve
