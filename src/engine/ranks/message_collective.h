// Ranks that are processes: each sends the others what it has of a matrix. Every step ends with a word of each rank to each, so
// that a rank whose step failed is not waited for, and nobody takes a message of one step for one of the next.
#pragma once

#include <string>
#include <vector>

#include "engine/ranks/rank_channel.h"
#include "platform/collective.h"

namespace choral::engine {

class MessageCollective : public platform::Collective {
 public:
  explicit MessageCollective(RankChannel& channel);

  void begin_step();
  // Returns when every rank is through with the step; `own`: how it went here. Whether it went well everywhere.
  bool end_step(bool own);

  int rank() const override { return channel_.rank(); }
  int ranks() const override { return channel_.ranks(); }
  void gather_columns(const kernels::Context& ctx, MatrixView<float> y, std::span<const int64_t> begins) override;
  void gather_rows(const kernels::Context& ctx, MatrixView<float> y, OwnerOf owner) override;

 private:
  struct Peer {
    bool is_in_step = true;
    std::string part;  // of what is gathered, that it sends
    RankLink::Transfer sent = 0, received = 0;
    int64_t expected = 0;  // bytes of the part
  };

  bool is_given_up() const { return given_up_ || !channel_.lost().ok(); }
  // Sends own_ to each peer that is to have it, and receives `expected` bytes of each. False: the step is given up.
  bool swap_parts();
  void note_end(int rank, RankTag tag);

  RankChannel& channel_;
  std::vector<Peer> peers_;  // of each rank; its own is not used
  std::string own_, unread_;
  bool given_up_ = false;
  bool failed_ = false;  // a peer's step
};

}  // namespace choral::engine
