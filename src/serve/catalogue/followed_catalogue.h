// The catalogue that this server follows, as far as it is here: which folder each name stands for now, and which content it
// should have there. Where it comes from says a class below: a folder that replicas share, or an index over HTTP. What was read
// last stays when the source cannot be read, and state() says so. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"
#include "lora/peft/adapters_in_root.h"

namespace choral::serve {

class FollowedCatalogue {
 public:
  struct Place {
    std::string folder;  // absolute, without links
    std::string digest;  // that it should have; empty: it is not said
    bool operator==(const Place&) const = default;
  };
  struct View {
    std::map<std::string, Place, std::less<>> places;
    std::map<std::string, Status, std::less<>> faults;  // names that cannot be had, with the reason
  };
  struct State {
    double read_unix_s = 0;  // when it was read last
    int64_t failures = 0;    // times it could not be read
    std::string error = {};  // why it cannot be read now; empty: it can
  };

  FollowedCatalogue() : places_(std::make_shared<AdapterPlaces>()) {}
  virtual ~FollowedCatalogue() = default;
  FollowedCatalogue(const FollowedCatalogue&) = delete;
  FollowedCatalogue& operator=(const FollowedCatalogue&) = delete;

  // Reads it anew, where it changed. An error: what was read before stays.
  Status look();
  // Seconds between two looks.
  virtual double look_every_s() const = 0;
  // A look under way ends soon.
  virtual void stop() {}
  // Null: there is no catalogue, and names are those of the adapter root.
  std::shared_ptr<const View> now() const;
  State state() const;
  // now(), for the engine.
  std::shared_ptr<const AdapterPlaces> places() const { return places_; }
  // Names and folders of now().
  static std::vector<lora::FoundAdapter> found(const View& view);

 protected:
  virtual Status read() = 0;  // any thread
  void publish(std::shared_ptr<const View> view);

 private:
  const std::shared_ptr<AdapterPlaces> places_;
  mutable std::mutex mutex_;
  std::shared_ptr<const View> view_;
  State state_;
};

}  // namespace choral::serve
