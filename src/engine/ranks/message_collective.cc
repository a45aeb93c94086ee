#include "engine/ranks/message_collective.h"

#include <algorithm>
#include <cstring>

#include "engine/ranks/row_tasks.h"

namespace choral::engine {
namespace {

constexpr int64_t kMostBytes = INT32_MAX;  // of a message of MPI

void copy_floats(const void* from, int64_t count, void* to) { std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float)); }

int64_t bytes_of(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

}  // namespace

MessageCollective::MessageCollective(RankChannel& channel) : channel_(channel), peers_(static_cast<size_t>(channel.ranks())) {}

void MessageCollective::begin_step() {
  for (auto& peer : peers_) peer.is_in_step = true;
  given_up_ = failed_ = false;
}

void MessageCollective::note_end(int rank, RankTag tag) {
  if (tag != RankTag::kEnded && tag != RankTag::kFailed) {
    channel_.mark_lost(rank, "is at another point of the step");
    return;
  }
  peers_[static_cast<size_t>(rank)].is_in_step = false;
  given_up_ = true;  // whoever ends within a gather of another will not send its part
  failed_ = failed_ || tag == RankTag::kFailed;
}

bool MessageCollective::swap_parts() {
  if (is_given_up()) return false;
  RankLink& link = channel_.link();
  const int self = channel_.rank();
  for (auto& peer : peers_) peer.part.resize(static_cast<size_t>(peer.expected));  // before anything is on its way
  if (const auto largest =
          std::max_element(peers_.begin(), peers_.end(), [](auto& a, auto& b) { return a.expected < b.expected; });
      largest->expected > kMostBytes) {
    channel_.mark_lost(static_cast<int>(largest - peers_.begin()),
                       "would send more than 2 GiB at once; lower --max-num-batched-tokens");
    return false;
  }
  for (int r = 0; r < channel_.ranks(); ++r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == self || peer.expected == 0) continue;
    peer.received = link.receive(r, peer.part.data(), peer.expected);
  }
  for (int r = 0; r < channel_.ranks() && !own_.empty(); ++r) {
    if (r != self) peers_[static_cast<size_t>(r)].sent = link.send(r, static_cast<int>(RankTag::kPart), own_);
  }
  for (int r = 0; r < channel_.ranks(); ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == self || peer.expected == 0) continue;
    RankLink::Message message;
    if (!channel_.finish(r, peer.received, message).ok()) return false;
    if (message.tag != static_cast<int>(RankTag::kPart)) {
      note_end(r, static_cast<RankTag>(message.tag));
    } else if (message.bytes != peer.expected) {
      channel_.mark_lost(r, "sent a part of another size");
    }
  }
  for (int r = 0; r < channel_.ranks() && !own_.empty(); ++r) {
    RankLink::Message none;
    if (r != self && !channel_.finish(r, peers_[static_cast<size_t>(r)].sent, none).ok()) return false;
  }
  return !is_given_up();
}

void MessageCollective::gather_columns(const kernels::Context& ctx, MatrixView<float> y, std::span<const int64_t> begins) {
  const auto count_of = [&](int r) { return begins[static_cast<size_t>(r) + 1] - begins[static_cast<size_t>(r)]; };
  const auto begin_of = [&](int r) { return begins[static_cast<size_t>(r)]; };
  const int self = channel_.rank();
  const int64_t own = count_of(self);
  if (is_given_up()) return;
  own_.resize(static_cast<size_t>(bytes_of(y.rows * own)));
  for_rows(ctx, y.rows, own,
           [&](int64_t row) { copy_floats(y.row(row) + begin_of(self), own, own_.data() + bytes_of(row * own)); });
  for (int r = 0; r < channel_.ranks(); ++r) peers_[static_cast<size_t>(r)].expected = bytes_of(y.rows * count_of(r));
  if (!swap_parts()) return;
  for_rows(ctx, y.rows, y.cols, [&](int64_t row) {
    for (int r = 0; r < channel_.ranks(); ++r) {
      const int64_t count = count_of(r);
      if (r != self)
        copy_floats(peers_[static_cast<size_t>(r)].part.data() + bytes_of(row * count), count, y.row(row) + begin_of(r));
    }
  });
}

void MessageCollective::gather_rows(const kernels::Context&, MatrixView<float> y, OwnerOf owner) {
  if (is_given_up()) return;
  own_.clear();
  for (auto& peer : peers_) peer.expected = 0;
  for (int64_t row = 0; row < y.rows; ++row) {
    const int of = owner(row);
    if (of == channel_.rank()) own_.append(reinterpret_cast<const char*>(y.row(row)), static_cast<size_t>(bytes_of(y.cols)));
    peers_[static_cast<size_t>(of)].expected += bytes_of(y.cols);
  }
  if (!swap_parts()) return;
  for (auto& peer : peers_) peer.expected = 0;  // now: what was taken of it
  for (int64_t row = 0; row < y.rows; ++row) {
    const int of = owner(row);
    if (of == channel_.rank()) continue;
    Peer& peer = peers_[static_cast<size_t>(of)];
    copy_floats(peer.part.data() + peer.expected, y.cols, y.row(row));
    peer.expected += bytes_of(y.cols);
  }
}

bool MessageCollective::end_step(bool own) {
  const bool went_well = own && !given_up_;
  if (!channel_.send_to_all(went_well ? RankTag::kEnded : RankTag::kFailed, {}).ok()) return false;
  for (int r = 0; r < channel_.ranks(); ++r) {
    while (r != channel_.rank() && peers_[static_cast<size_t>(r)].is_in_step) {
      const auto tag = channel_.receive_any(r, unread_);
      if (!tag.ok()) return false;
      if (*tag != RankTag::kPart) note_end(r, *tag);
    }
  }
  return went_well && !failed_ && channel_.lost().ok();
}

}  // namespace choral::engine
