"""The content of releases that several models make alike, in words for those who approve a plan, by their names."""

#: The releases of a fit by rounds, in words, by their names: of every model that is fitted so.
ROUNDS = {
    "count": "the number of rows",
    "base": "the sum of the responses (or of each class of them), from which the fit starts",
    "scales": "counts of values by size in each column, by which columns are brought to one scale",
    "descent": "the sum over rows of how each row pulls at the coefficients, once in every round of the fit",
    "direction": "the sum over rows of how each row pulls at the coefficients, once in every round of the fit",
    "length": "the sum over rows of how each row pulls at the scale of the fit, once in every round",
    "beginning": "sums of products of all columns with each other and with the response, from which the fit starts",
    "spread": "the sum of the sizes of residuals, from which their spread follows",
    "cells": "the number of residuals in each cell of a histogram",
    "residual": "sums of products of the columns with each other and with the residuals",
    "cross": "sums of products of the columns in focus with all others",
    "meat": "sums of products of the columns, weighted by squared residuals, for standard errors",
    "score": "the sum over rows of how each row pulls at the coefficients, at the end of the fit",
    "information": "sums of products of the columns, weighted as the fit weights them, for standard errors",
    "probabilities": "predicted and observed cases by predicted probability, by which probabilities are calibrated",
}
#: The releases of a study of split columns of whole persons.
JOINT = {
    "constants": "sums and sums of squares of single columns, by which columns are brought to one scale",
    "joint": "sums of products of the columns of all parties",
}
