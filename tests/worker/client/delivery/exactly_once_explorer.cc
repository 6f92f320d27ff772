// Visits every state of the model.
#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/client/delivery/exactly_once_model.h"
#include "tests/worker/client/delivery/exactly_once_state.h"
#include "tests/worker/client/delivery/exactly_once_steps.h"

namespace cairn::test {
namespace {

// Breadth first, so that a violation is found with as few events as possible.
class Explorer {
 public:
  explicit Explorer(const ModelOptions& options) : options_(options), model_(options) {}

  ModelResult Run() {
    Visit(model_.Start(), 0, [] { return std::string("start"); });
    for (uint32_t at = 0; at < states_.size() && result_.violation.empty(); ++at) {
      const ModelState state = states_[at];
      model_.Step(state, [&](const ModelState& next, Model::Event event) {
        if (result_.violation.empty()) Visit(next, at, event);
      });
    }
    result_.states = states_.size();
    if (result_.violation.empty()) FindWedge();
    return result_;
  }

 private:
  void Visit(const ModelState& state, uint32_t from, Model::Event event) {
    const std::string wrong = model_.Wrong(state);
    const auto [found, is_new] = index_.try_emplace(state, static_cast<uint32_t>(states_.size()));
    edges_.emplace_back(found->second, from);
    if (is_new) {
      states_.push_back(state);
      parents_.push_back(from);
      if (states_.size() > options_.max_states) Fail("more states than allowed", from, event());
    }
    if (!wrong.empty()) Fail(wrong, from, event());
  }
  void Fail(const std::string& what, uint32_t from, const std::string& event);
  std::string EventBetween(uint32_t from, uint32_t to);
  void FindWedge();

  const ModelOptions& options_;
  const Model model_;
  ModelResult result_;
  absl::flat_hash_map<ModelState, uint32_t> index_;
  std::deque<ModelState> states_;
  std::vector<uint32_t> parents_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // to, from
};

std::string Explorer::EventBetween(uint32_t from, uint32_t to) {
  std::string between;
  model_.Step(states_[from], [&](const ModelState& next, Model::Event event) {
    if (next == states_[to]) between = event();
  });
  return between;
}

void Explorer::Fail(const std::string& what, uint32_t from, const std::string& event) {
  std::vector<std::string> events = {event};
  for (uint32_t at = from; at != 0; at = parents_[at]) {
    events.push_back(EventBetween(parents_[at], at));
  }
  result_.violation = what;
  for (auto e = events.rbegin(); e != events.rend(); ++e) {
    absl::StrAppend(&result_.violation, "\n  ", *e);
  }
}

// From every state, a state in which all servers have all pushes must be reachable.
void Explorer::FindWedge() {
  std::sort(edges_.begin(), edges_.end());
  std::vector<bool> reaches(states_.size());
  std::vector<uint32_t> todo;
  for (uint32_t at = 0; at < states_.size(); ++at) {
    if (!model_.Complete(states_[at])) continue;
    reaches[at] = true;
    todo.push_back(at);
  }
  while (!todo.empty()) {
    const uint32_t to = todo.back();
    todo.pop_back();
    auto edge = std::lower_bound(edges_.begin(), edges_.end(), std::make_pair(to, uint32_t{0}));
    for (; edge != edges_.end() && edge->first == to; ++edge) {
      if (reaches[edge->second]) continue;
      reaches[edge->second] = true;
      todo.push_back(edge->second);
    }
  }
  const auto stuck = std::find(reaches.begin(), reaches.end(), false);
  if (stuck == reaches.end()) return;
  const auto at = static_cast<uint32_t>(stuck - reaches.begin());
  Fail("from here the end cannot be reached", at, "(no event leads on)");
}

}  // namespace

ModelResult Explore(const ModelOptions& options) { return Explorer(options).Run(); }

}  // namespace cairn::test
