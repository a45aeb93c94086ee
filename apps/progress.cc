#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "answer_layout.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/thread.h"
#include "terminal_text.h"

namespace choral::apps {
namespace {

constexpr double kBarPause = 0.1;
constexpr double kLinePause = 1.9;
constexpr double kBarDelay = 0.3;  // quicker work shows no bar
constexpr int kBarWidth = 24;

}  // namespace

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), begin_(now_s()), last_draw_(begin_) {
  if (quiet_) return;
  if (auto thread = start_thread("the progress bar", [this] { run(); }); thread.ok())
    thread_ = std::move(*thread);  // else no bar
}

Progress::~Progress() { stop(); }

void Progress::update(std::string text, double fraction) {
  const std::lock_guard lock(mutex_);
  text_ = terminal_line(text);
  fraction_ = fraction;
}

void Progress::finish(std::string_view line) {
  stop();
  if (!quiet_ && !line.empty()) say_wrapped("choral: " + terminal_line(line));
}

void Progress::say_line(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (quiet_) return;
  if (std::exchange(drawn_, false) && terminal_) say("\r\033[K");
  say_wrapped("choral: " + terminal_line(line));
}

void Progress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (drawn_ && terminal_) say("\r\033[K");
  drawn_ = false;
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(kBarPause), [this] { return stop_; })) {
    const double now = now_s();
    if (now - begin_ < kBarDelay || now - last_draw_ < (terminal_ ? kBarPause : kLinePause)) continue;
    try {
      draw(now);
    } catch (const std::bad_alloc&) {
      // Without memory nothing is drawn; the work says itself what it could not do.
    }
  }
}

void Progress::draw(double now) {
  std::string line = fmt::format("choral: {}", text_);
  if (fraction_ >= 0) {
    const int full = static_cast<int>(fraction_ * kBarWidth);
    if (terminal_) line += fmt::format(" [{:#<{}}{:.<{}}]", "", full, "", kBarWidth - full);
    line += fmt::format(" {:.0f} %", 100 * fraction_);
  }
  line += fmt::format(" ({:.0f} s)", now - begin_);
  if (terminal_) {
    say("\r\033[K{}", cut_to_width(line, std::max(0, terminal_columns(STDERR_FILENO) - 1)));
  } else {
    say("{}\n", line);
  }
  drawn_ = true;
  last_draw_ = now;
}

}  // namespace choral::apps
