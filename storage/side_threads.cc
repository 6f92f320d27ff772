#include "storage/side_threads.h"

#include <system_error>

namespace cairn {

SideThreads::~SideThreads() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
    wanted_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void SideThreads::Job::Help() {
  for (size_t piece = next.fetch_add(1); piece < pieces; piece = next.fetch_add(1)) work(piece);
}

void SideThreads::StartSome() {
  while (idle_ == 0 && threads_.size() < count_) {
    try {
      threads_.emplace_back(&SideThreads::Main, this);
    } catch (const std::system_error&) {
      return;  // no threads to be had: those that ask do the work
    }
    ++idle_;
  }
}

void SideThreads::Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work) {
  Job job(pieces, work);
  if (count_ == 0 || pieces < 2) return job.Help();
  std::list<Job*>::iterator place;
  {
    absl::MutexLock lock(&mutex_);
    StartSome();
    place = jobs_.insert(jobs_.end(), &job);
    for (size_t i = 1; i < pieces && i <= idle_; ++i) wanted_.Signal();
  }
  job.Help();
  absl::MutexLock lock(&mutex_);
  jobs_.erase(place);
  while (job.helpers > 0) helped_.Wait(&mutex_);
}

void SideThreads::Main() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    Job* job = nullptr;
    for (Job* const each : jobs_) {
      if (each->next.load() < each->pieces) job = each;
      if (job != nullptr) break;
    }
    if (job == nullptr) {
      if (stopping_) return;
      wanted_.Wait(&mutex_);
      continue;
    }
    --idle_;
    ++job->helpers;
    mutex_.Unlock();
    job->Help();
    mutex_.Lock();
    ++idle_;
    if (--job->helpers == 0) helped_.SignalAll();
  }
}

}  // namespace cairn
