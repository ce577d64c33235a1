from __future__ import annotations

from django.urls import path
from shop import views

urlpatterns = [path("order/<str:email>", views.order), path("ask", views.ask)]
