#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/no_color.h"
#include "base/printable.h"

namespace choral {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::warn;
}

constexpr std::array<std::string_view, 5> kLevels{"debug", "info", "warn", "error", "off"};  // in the order of LogLevel

// None: another word.
std::optional<LogLevel> level_from_environment() {
  const char* text = std::getenv("CHORAL_LOG_LEVEL");
  if (text == nullptr || *text == '\0') return LogLevel::kWarn;
  const auto* found = std::find(kLevels.begin(), kLevels.end(), text);
  return found == kLevels.end() ? std::nullopt : std::optional(static_cast<LogLevel>(found - kLevels.begin()));
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("choral", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
                                                       no_color() ? spdlog::color_mode::never : spdlog::color_mode::automatic));
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    made->set_level(to_spdlog(level_from_environment().value_or(LogLevel::kWarn)));
    return made;
  }();
  return *instance;
}

}  // namespace

Status check_log_level() {
  if (level_from_environment()) return {};
  return invalid_argument("CHORAL_LOG_LEVEL={}: choose debug, info, warn, error or off", std::getenv("CHORAL_LOG_LEVEL"));
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }
void write_log(LogLevel level, std::string_view line) { logger().log(to_spdlog(level), terminal_text(line)); }

void write_stderr(std::string_view text) {
  // Not fmt::print, which throws when the write fails.
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace choral
