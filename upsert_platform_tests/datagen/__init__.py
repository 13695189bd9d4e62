"""Tests of rows that no system holds."""
