// Answers as they come, for one reader: an asyncio loop that watches a file descriptor. One take() gives the news of all streams.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "engine.h"
#include "news.h"

namespace choral::python {
namespace {

class Streams {
 public:
  explicit Streams(std::shared_ptr<Engine> engine) : engine_(std::move(engine)), news_(value_of(News::make())) {}

  int fd() const { return news_->fd(); }

  // Its number. The GIL is released: tokenizing takes its time.
  uint64_t submit(const Request& request) {
    auto stream = value_of(engine_->use()->submit(request));
    const std::lock_guard lock(mutex_);
    const uint64_t number = next_++;
    news_->reserve(streams_.size() + 1);
    auto& kept = streams_.emplace(number, std::move(stream)).first->second;
    kept->on_ready([news = news_, number] { news->tell(number); });
    return number;
  }

  // [(number, [Event, …], Output or None)] of those with news; with its Output a stream has ended.
  nb::list take() {
    news_->take(ready_);
    nb::list out;
    for (const uint64_t number : ready_) {
      std::unique_ptr<ResponseStream> ended;
      nb::list events;
      nb::object output = nb::none();
      {
        const std::lock_guard lock(mutex_);
        const auto found = streams_.find(number);
        if (found == streams_.end()) continue;
        StreamState state = StreamState::kEvent;
        for (StreamEvent event; (state = found->second->try_next(event)) == StreamState::kEvent; event = {})
          events.append(nb::cast(std::move(event)));
        if (state == StreamState::kEnd) {
          ended = std::move(found->second);
          streams_.erase(found);
        }
      }
      if (ended != nullptr) output = nb::cast(ended->wait());
      out.append(nb::make_tuple(number, events, output));
    }
    return out;
  }

  // Its end comes by take(), as of every other.
  void cancel(uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(number);
    if (found != streams_.end()) found->second->cancel();
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<News> news_;
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<ResponseStream>> streams_;
  uint64_t next_ = 1;
  std::vector<uint64_t> ready_;  // take()'s own
};

}  // namespace

void bind_streams(nb::module_& m) {
  nb::class_<Streams>(m, "Streams")
      .def(nb::init<std::shared_ptr<Engine>>(), nb::arg("engine"))
      .def_prop_ro("fd", &Streams::fd)
      .def("submit", &Streams::submit, nb::arg("request"), nb::call_guard<nb::gil_scoped_release>())
      .def("take", &Streams::take, nb::sig("def take(self) -> list[tuple[int, list[Event], Output | None]]"))
      .def("cancel", &Streams::cancel, nb::arg("number"));
}

}  // namespace choral::python
