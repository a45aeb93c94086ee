#include "requests/unknown_fields.h"

#include "base/nearest_name.h"
#include "base/printable.h"
#include "base/status.h"

namespace choral::requests {
namespace {

constexpr size_t kMostTold = 16;
constexpr size_t kMostNameBytes = 64;   // that are printed
constexpr size_t kMostKeptBytes = 512;  // of what was met

}  // namespace

std::string unknown_field_text(std::string_view name, std::span<const std::string> known, UnknownField what) {
  const std::string nearest = nearest_name(name.substr(0, kMostNameBytes), known);
  return fmt::format("the field '{}' is not known{}{}", printable(name, kMostNameBytes),
                     what == UnknownField::kHasNoEffect ? " and has no effect" : "",
                     nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

UnknownFieldLog::Say UnknownFieldLog::meet(std::string_view field) {
  if (told_.size() > kMostTold || !told_.emplace(field.substr(0, kMostKeptBytes)).second) return Say::kNothing;
  return told_.size() > kMostTold ? Say::kMore : Say::kIt;
}

}  // namespace choral::requests
