#include "storage/helper_pool.h"

#include <system_error>
#include <utility>

#include "common/scoped_unlock.h"

namespace cairn {

HelperPool::~HelperPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
    wanted_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

HelperPool::Job::Job(HelperPool& side, std::function<void(size_t piece)> work)
    : side_(side), work_(std::move(work)), place_(side.Enlist(this)) {}

HelperPool::Job::~Job() {
  absl::MutexLock lock(&side_.mutex_);
  side_.jobs_.erase(place_);
  pieces_ = next_;
  while (helpers_ > 0) side_.helped_.Wait(&side_.mutex_);
}

void HelperPool::Job::Add(size_t pieces, size_t helpers) {
  absl::MutexLock lock(&side_.mutex_);
  side_.StartSome();
  pieces_ += pieces;
  for (size_t i = 0; i < helpers && i < side_.idle_; ++i) side_.wanted_.Signal();
}

void HelperPool::Job::Finish() {
  absl::MutexLock lock(&side_.mutex_);
  Help();
  while (helpers_ > 0) side_.helped_.Wait(&side_.mutex_);
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void HelperPool::Job::Help() {
  while (next_ < pieces_) {
    const size_t piece = next_++;
    const ScopedUnlock unlock(&side_.mutex_);
    work_(piece);
  }
}

std::list<HelperPool::Job*>::iterator HelperPool::Enlist(Job* job) {
  absl::MutexLock lock(&mutex_);
  return jobs_.insert(jobs_.end(), job);
}

void HelperPool::StartSome() {
  while (idle_ == 0 && threads_.size() < count_) {
    try {
      threads_.emplace_back(&HelperPool::Main, this);
    } catch (const std::system_error&) {
      return;  // no threads available: the callers do the work
    }
    ++idle_;
  }
}

void HelperPool::Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work) {
  if (count_ == 0 || pieces < 2) {
    for (size_t piece = 0; piece < pieces; ++piece) work(piece);
    return;
  }
  Job job(*this, work);
  job.Add(pieces, /*helpers=*/pieces - 1);
  job.Finish();
}

void HelperPool::Main() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    Job* job = nullptr;
    for (Job* const each : jobs_) {
      if (each->next_ < each->pieces_) job = each;
      if (job != nullptr) break;
    }
    if (job == nullptr) {
      if (stopping_) return;
      wanted_.Wait(&mutex_);
      continue;
    }
    --idle_;
    ++job->helpers_;
    try {
      job->Help();
    } catch (...) {
      job->thrown_ = std::current_exception();
      job->next_ = job->pieces_;
    }
    ++idle_;
    if (--job->helpers_ == 0) helped_.SignalAll();
  }
}

}  // namespace cairn
