// What a step of so many rows costs, learned from the steps that ran: a weight is read once for all rows of a step, so the first
// rows beside one are nearly free until the multiplications take longer than the reading. Where that is depends on the model, its
// form, the machine, and whatever else runs there. That changes, so what is old counts less, and is to be seen again: a choice
// between numbers of rows of which one is never taken would be held for ever against what that one cost once. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace choral::engine {

class StepCosts {
 public:
  // A step that held nothing but the next token of some requests, and guesses, took so long.
  void add(int32_t rows, double seconds);
  // Of a step of so many rows; relative to nothing until a step was seen.
  double seconds(int32_t rows) const;
  bool empty() const { return seen_ == 0; }
  // It is long ago, for how seldom it was seen, that a step of so many rows was.
  bool is_stale(int32_t rows) const;

 private:
  // Rows 1, 2, 3, 4, 5-6, 7-8, 9-12, 13-16, …: each power of two in two halves.
  static constexpr int32_t kClasses = 24;
  static int32_t class_of(int32_t rows);

  struct Class {
    double rows = 0, seconds = 0;  // means, of late
    int64_t steps = 0, last = 0;   // how many, and which of all steps
  };
  std::array<Class, kClasses> classes_ = {};
  int64_t seen_ = 0;
};

}  // namespace choral::engine
