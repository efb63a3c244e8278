#include "row_sum.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace {

// One helper, started at first use; it sleeps whenever no call is running.
class Helper {
 public:
  Helper() : thread_([this] { loop(); }) {}

  ~Helper() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void start(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !work_; });
  }

 private:
  void loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || work_; });
      if (stop_) return;
      work_();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool stop_ = false;
  std::thread thread_;
};

void some(float* out, const float* x, int64_t first, int64_t last, int64_t cols) {
  for (int64_t i = first; i < last; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += x[i * cols + j];
    out[i] = sum;
  }
}

}  // namespace

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  static Helper helper;
  helper.start([=] { some(out, x, rows / 2, rows, cols); });
  some(out, x, 0, rows / 2, cols);
  helper.wait();
}
