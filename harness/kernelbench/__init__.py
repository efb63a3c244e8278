"""KernelBench problems as tasks: conversion, admission, ModelNew files, KernelBench's own score."""
