#include "common/blocking.h"

namespace cairn {
namespace {

thread_local BlockingObserver* observer_of_thread = nullptr;
thread_local int depth_of_thread = 0;

}  // namespace

Blocking::Blocking(WaitFor what) : what_(what) {
  if (observer_of_thread != nullptr && depth_of_thread++ == 0) observer_of_thread->Blocks();
}

Blocking::~Blocking() {
  if (observer_of_thread != nullptr && --depth_of_thread == 0) observer_of_thread->Unblocks(what_);
}

bool Blocking::IsObserved() { return observer_of_thread != nullptr; }

ObservedThread::ObservedThread(BlockingObserver* observer) { observer_of_thread = observer; }

ObservedThread::~ObservedThread() { observer_of_thread = nullptr; }

}  // namespace cairn
