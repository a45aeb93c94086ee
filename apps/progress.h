// Says on stderr that long work goes on: a bar when it is a terminal, else a plain line every two seconds. Work that is over at
// once shows nothing. A thread of its own keeps it moving while the caller is inside one long call.
// update() may be called from any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace choral::apps {

class Progress {
 public:
  static constexpr double kUnknown = -1;

  explicit Progress(bool quiet);
  ~Progress();  // takes the bar away

  void update(std::string text, double fraction);  // fraction 0 … 1 or kUnknown
  void say_line(std::string_view line);            // above the bar
  void finish(std::string_view line = {});         // takes the bar away and says the last word, once

 private:
  void run();
  void draw(double now);
  void stop();

  const bool quiet_;
  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string text_;
  double fraction_ = kUnknown;
  double begin_ = 0;
  double last_draw_ = 0;
  bool drawn_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace choral::apps
