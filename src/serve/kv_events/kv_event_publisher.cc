#include "serve/kv_events/kv_event_publisher.h"

#include <array>
#include <chrono>
#include <deque>

#include "base/log.h"
#include "base/printable.h"
#include "base/thread.h"
#include "base/unix_clock.h"
#include "serve/kv_events/kv_event_message.h"
#include "serve/kv_events/zmq_socket.h"

namespace choral::serve {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // for those who ask, while no events come
constexpr size_t kMostPastBytes = 64 << 20;
constexpr uint64_t kEndOfPast = ~uint64_t{0};

using Number = std::array<char, sizeof(uint64_t)>;

Number big_endian(uint64_t number) {
  Number bytes;
  for (size_t i = bytes.size(); i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number & 0xFF);
  return bytes;
}

uint64_t from_big_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

std::string_view text(const Number& bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace

// The sockets, and what was published of late.
struct KvEventPublisher::Past {
  struct Message {
    uint64_t number;
    std::string bytes;
  };
  ZmqContext context;
  ZmqSocket events;
  std::optional<ZmqSocket> replay;
  size_t most_messages;
  std::deque<Message> messages;
  size_t bytes = 0;

  void keep(uint64_t number, std::string message) {
    bytes += message.size();
    messages.push_back({number, std::move(message)});
    while (messages.size() > most_messages || (bytes > kMostPastBytes && messages.size() > 1)) {
      bytes -= messages.front().bytes.size();
      messages.pop_front();
    }
  }
};

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::make(const KvEventSettings& settings) {
  CHORAL_TRY(auto context, ZmqContext::make());
  CHORAL_TRY(auto events, ZmqSocket::make(context, ZmqLibrary::kPub, settings.endpoint, settings.bind, settings.hwm));
  std::optional<ZmqSocket> replay;
  if (!settings.replay_endpoint.empty()) {
    CHORAL_TRY(auto opened,
               ZmqSocket::make(context, ZmqLibrary::kRouter, settings.replay_endpoint, /*bind=*/true, settings.buffer_steps + 1));
    replay.emplace(std::move(opened));
  }
  const auto most = static_cast<size_t>(settings.buffer_steps);
  std::unique_ptr<Past> past(new Past{std::move(context), std::move(events), std::move(replay), most, {}});
  return std::unique_ptr<KvEventPublisher>(new KvEventPublisher(settings.topic, std::move(past)));
}

KvEventPublisher::KvEventPublisher(std::string topic, std::unique_ptr<Past> past)
    : topic_(std::move(topic)), past_(std::move(past)) {}

KvEventPublisher::~KvEventPublisher() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

Status KvEventPublisher::start(LLM& llm) {
  CHORAL_TRY(thread_, start_thread("the thread of the cache's events", [this, &llm] { run(llm); }));
  std::string told = fmt::format("events of the prefix cache are published at {}", past_->events.address());
  if (past_->replay) told += fmt::format(", past ones at {}", past_->replay->address());
  say("choral: {}\n", terminal_line(told));
  return {};
}

void KvEventPublisher::run(LLM& llm) {
  publish(0, all_blocks_cleared_message(unix_s()));
  int64_t next = 0;
  while (!ending_) {
    answer_those_who_ask();
    KvEventBatch batch;
    if (!llm.next_kv_events(batch, kLook)) continue;
    if (batch.number != next)
      CHORAL_LOG(kWarn, "{} batches of events of the prefix cache were lost: they came faster than they could be published",
                 batch.number - next);
    next = batch.number + 1;
    publish(static_cast<uint64_t>(next), kv_event_message(batch.events, llm.info().kv_block_tokens, unix_s()));
  }
}

void KvEventPublisher::publish(uint64_t number, std::string message) {
  const Status sent = past_->events.send({topic_, text(big_endian(number)), message});
  if (!sent.ok() && !std::exchange(has_warned_, true))
    CHORAL_LOG(kWarn, "an event of the prefix cache was not sent: {}", sent.message());
  past_->keep(number, std::move(message));
}

void KvEventPublisher::answer_those_who_ask() {
  constexpr size_t kMostIdentity = 256;
  if (!past_->replay) return;
  while (const auto asked = past_->replay->receive(kMostIdentity)) {
    if (asked->size() != 3 || asked->back().size() != sizeof(uint64_t)) continue;  // no number of ours
    const uint64_t first = from_big_endian(asked->back());
    Status sent;
    for (const auto& message : past_->messages) {
      if (message.number < first) continue;
      sent = past_->replay->send({asked->front(), "", text(big_endian(message.number)), message.bytes});
      if (!sent.ok()) break;
    }
    if (sent.ok()) sent = past_->replay->send({asked->front(), "", text(big_endian(kEndOfPast)), ""});
    if (!sent.ok()) CHORAL_LOG(kWarn, "past events of the prefix cache were not sent: {}", sent.message());
  }
}

}  // namespace choral::serve
