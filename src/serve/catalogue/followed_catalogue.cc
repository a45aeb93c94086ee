#include "serve/catalogue/followed_catalogue.h"

#include <utility>

#include "base/log.h"
#include "base/unix_clock.h"

namespace choral::serve {

Status FollowedCatalogue::look() {
  const Status done = read();
  const double now = unix_s();
  std::string before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(state_.error, done.ok() ? "" : done.message());
    if (done.ok()) state_.read_unix_s = now;
    if (!done.ok()) ++state_.failures;
  }
  if (!done.ok() && before != done.message())
    CHORAL_LOG(kWarn, "the catalogue of adapters cannot be read, and what was read before stays: {}", done.message());
  if (done.ok() && !before.empty()) CHORAL_LOG(kInfo, "the catalogue of adapters can be read again");
  return done;
}

std::shared_ptr<const FollowedCatalogue::View> FollowedCatalogue::now() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

FollowedCatalogue::State FollowedCatalogue::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::vector<lora::FoundAdapter> FollowedCatalogue::found(const View& view) {
  std::vector<lora::FoundAdapter> all;
  for (const auto& [name, place] : view.places) all.push_back({name, place.folder});
  return all;
}

void FollowedCatalogue::publish(std::shared_ptr<const View> view) {
  std::shared_ptr<AdapterPlaces::Folders> folders;
  if (view != nullptr) {
    folders = std::make_shared<AdapterPlaces::Folders>();
    for (const auto& [name, place] : view->places) folders->emplace(name, place.folder);
  }
  const std::lock_guard lock(mutex_);
  places_->set(std::move(folders));
  view_.swap(view);
}

}  // namespace choral::serve
